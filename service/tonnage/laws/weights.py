"""
How many bytes a weight matrix takes in each storage format.

Bits per weight do not exist here: a format is blocks of (elements, bytes) plus scales and zeros by
group, so every size is exact.
"""

from tonnage.units import ceil_div, round_up


def blocks(*, elements: int, block_elements: int, block_bytes: int) -> int:
    """
    Elements stored in blocks that each carry their own scales.

    Args:
        elements: Elements of the matrix. [elements]
        block_elements: Elements one block holds. [elements]
        block_bytes: Size of one block. [bytes]

    Returns:
        Size, the last block whole. [bytes]

    Source:
        PyPI gguf 0.19.0 constants.py GGML_QUANT_SIZES (block size, type size)
    """
    return ceil_div(elements, block_elements) * block_bytes


def packed_rows(*, out_features: int, in_features: int, block_elements: int, block_bytes: int) -> int:
    """
    Matrix whose rows are packed each for itself.

    Args:
        out_features: Rows. [elements]
        in_features: Elements of one row. [elements]
        block_elements: Elements one block holds. [elements]
        block_bytes: Size of one block. [bytes]

    Returns:
        Size, the last block of every row whole. [bytes]

    Source:
        ggml-org/llama.cpp@0c1e57098 ggml/src/ggml.c ggml_row_size
    """
    return out_features * blocks(elements=in_features, block_elements=block_elements, block_bytes=block_bytes)


def group_scales(*, out_features: int, in_features: int, group_size: int, scale_bits: int) -> int:
    """
    Scales (and zeros of their width) by group of input elements.

    Args:
        out_features: Rows. [elements]
        in_features: Columns. [elements]
        group_size: Columns per scale; 0: one scale per row; -1: one per tensor. [elements]
        scale_bits: Width of what one group stores. [bits]

    Returns:
        Size of the scales. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/quantization/gptq.py create_weights (scales, qzeros)
    """
    if group_size < 0:
        return ceil_div(scale_bits, 8)
    groups = ceil_div(in_features, group_size) if group_size else 1
    return ceil_div(out_features * groups * scale_bits, 8)


def tile_scales(*, out_features: int, in_features: int, tile_out: int, tile_in: int, scale_bytes: int) -> int:
    """
    One scale per two-dimensional tile of the matrix.

    Args:
        out_features: Rows. [elements]
        in_features: Columns. [elements]
        tile_out: Rows of a tile. [elements]
        tile_in: Columns of a tile. [elements]
        scale_bytes: Width of a scale. [bytes]

    Returns:
        Size of the scales. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/quantization/fp8.py create_weights
        (BlockQuantScaleParameter)
    """
    return ceil_div(out_features, tile_out) * ceil_div(in_features, tile_in) * scale_bytes


def bitsandbytes_state(*, elements: int, block_size: int = 64, nested_block: int | None = None) -> int:
    """
    What Linear4bit keeps beside its packed codes: code book and absmax by block, itself quantized when nested.

    Args:
        elements: Elements of the matrix. [elements]
        block_size: Elements per absmax. [elements]
        nested_block: Absmax values per second-level absmax (double quantization); None: fp32 absmax. [values]

    Returns:
        Quantization state. [bytes]

    Source:
        measured: tests/estimate/golden/bitsandbytes.json; bitsandbytes-foundation/bitsandbytes@0.49 functional.py
        quantize_4bit
    """
    absmax, code_book = ceil_div(elements, block_size), 16 * 4
    if nested_block is None:
        return code_book + 4 * absmax
    code_book_of_absmax, offset = 256 * 4, 4
    return code_book + absmax + 4 * ceil_div(absmax, nested_block) + code_book_of_absmax + offset


def padded_vocabulary(*, vocab_size: int, multiple: int = 64, tensor_parallel_size: int = 1) -> int:
    """
    Rows of an embedding or head after padding.

    Args:
        vocab_size: Rows of the checkpoint. [elements]
        multiple: What an engine pads to; 1 pads to nothing. [elements]
        tensor_parallel_size: Ranks that must get equal parts. [unitless]

    Returns:
        Rows over all ranks. [elements]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/vocab_parallel_embedding.py pad_vocab_size
        (DEFAULT_VOCAB_PADDING_SIZE = 64); NVIDIA/Megatron-LM@core_v0.12 megatron/training/tokenizer/tokenizer.py
        _vocab_size_with_padding (multiple x tensor parallel size)
    """
    return round_up(round_up(vocab_size, multiple), tensor_parallel_size)


def part_of_file(*, file_bytes: int, ranks: int) -> int:
    """
    A rank's even part of a checkpoint whose size is known.

    Args:
        file_bytes: Size of the file. [bytes]
        ranks: Ranks that share it. [unitless]

    Returns:
        Size. [bytes]

    Source:
        definition
    """
    return file_bytes // ranks


def average(*, parameters_bytes: int, ranks: int) -> int:
    """
    A rank's part of a bare count in a format that is only known by its average width.

    Args:
        parameters_bytes: Parameters by the format's average. [bytes]
        ranks: Ranks that share them. [unitless]

    Returns:
        Part of the fullest rank. [bytes]

    Source:
        definition
    """
    return -(-parameters_bytes // ranks)
