"""Trainable parameters of adapters: low-rank pairs, scales, virtual tokens."""

from collections.abc import Sequence
from typing import TypeAlias

Shape: TypeAlias = tuple[int, int, int]
"""Rows, columns (1: a vector) and how many tensors of this shape. [elements]"""


def tensors(*, shapes: Sequence[Shape], rest: Sequence[Shape], element_bytes: int) -> int:
    """
    Everything that trains beside a frozen model: adapters, and modules saved in full.

    Args:
        shapes: Matrices and vectors of adapters.
        rest: Modules saved in full.
        element_bytes: Width of an element. [bytes]

    Returns:
        Size. [bytes]

    Source:
        huggingface/peft@v0.21.2 src/peft/tuners/lora/layer.py update_layer (A: rank x in, B: out x rank)
    """
    return sum(rows * columns * copies for rows, columns, copies in (*shapes, *rest)) * element_bytes


def lora(*, in_features: int, out_features: int, rank: int, copies: int = 1) -> int:
    """
    A low-rank pair beside a linear.

    Args:
        in_features: Columns of the linear. [elements]
        out_features: Rows. [elements]
        rank: Rank of the pair. [unitless]
        copies: Linears of this shape: layers, experts. [unitless]

    Returns:
        Parameters. [unitless]

    Source:
        arXiv:2106.09685 section 4.1; huggingface/peft@v0.21.2 src/peft/tuners/lora/layer.py update_layer
    """
    return copies * rank * (in_features + out_features)


def dora(*, in_features: int, out_features: int, rank: int, copies: int = 1) -> int:
    """
    A low-rank pair and a magnitude per output.

    Args:
        in_features: Columns of the linear. [elements]
        out_features: Rows. [elements]
        rank: Rank of the pair. [unitless]
        copies: Linears of this shape. [unitless]

    Returns:
        Parameters. [unitless]

    Source:
        arXiv:2402.09353; huggingface/peft@v0.21.2 src/peft/tuners/lora/dora.py DoraLinearLayer
    """
    return copies * (rank * (in_features + out_features) + out_features)


def merged(*, elements: int, adapter_bytes: int, quantized: bool, magnitudes: bool = False) -> int:
    """
    merge_and_unload: what the largest linear takes beside its weight.

    A product and the same scaled; of a packed linear the weight dequantized, the scaled product, their sum and the sum
    back on the GPU; of DoRA a copy of the weight, the product, the sum, the sum by magnitude, and the result in the
    weight's dtype.

    Args:
        elements: Of the largest adapted linear. [elements]
        adapter_bytes: Width of adapters. [bytes]
        quantized: The linear is packed in 4 bit.
        magnitudes: The adapter is a DoRA.

    Returns:
        Size. [bytes]

    Source:
        huggingface/peft@v0.21.2 src/peft/tuners/lora/layer.py get_delta_weight, merge, bnb.py Linear4bit.merge, variants.py
        DoraLinearVariant.merge_unsafe; recorded: tests/oracles/phase_runs.json (16-bit weights)
    """
    if quantized:
        return elements * (2 + adapter_bytes + 2 * max(2, adapter_bytes)) + elements // 2
    if magnitudes:
        return elements * (2 + 3 * adapter_bytes + (2 if adapter_bytes > 2 else 0))
    return 2 * elements * adapter_bytes


def ia3(*, scaled: int, copies: int = 1) -> int:
    """
    A scale per output of keys and values, per input of the feed-forward's last linear.

    Args:
        scaled: Elements that are scaled. [elements]
        copies: Linears of this shape. [unitless]

    Returns:
        Parameters. [unitless]

    Source:
        arXiv:2205.05638 section 3.3; huggingface/peft@v0.21.2 src/peft/tuners/ia3/layer.py
    """
    return copies * scaled


def prompt(*, virtual_tokens: int, hidden_size: int) -> int:
    """
    Embeddings of virtual tokens before the input.

    Args:
        virtual_tokens: Tokens. [tokens]
        hidden_size: Width of the model. [elements]

    Returns:
        Parameters. [unitless]

    Source:
        arXiv:2104.08691; huggingface/peft@v0.21.2 src/peft/tuners/prompt_tuning/model.py PromptEmbedding
    """
    return virtual_tokens * hidden_size


def prefix(*, virtual_tokens: int, num_hidden_layers: int, key_value_width: int) -> int:
    """
    Keys and values of virtual tokens in every layer.

    Args:
        virtual_tokens: Tokens. [tokens]
        num_hidden_layers: Layers. [layers]
        key_value_width: KV heads x head size. [elements]

    Returns:
        Parameters. [unitless]

    Source:
        arXiv:2101.00190; huggingface/peft@v0.21.2 src/peft/tuners/prefix_tuning/model.py PrefixEncoder
    """
    return virtual_tokens * num_hidden_layers * 2 * key_value_width


def prefix_cache(
    *,
    virtual_tokens: int,
    sequences: int,
    length: int,
    num_hidden_layers: int,
    key_value_width: int,
    query_width: int,
    element_bytes: int,
) -> int:
    """
    What a forward pass behind a prefix keeps beside one without: a cache joined from prefix and sequence, and its expansion.

    Args:
        virtual_tokens: Tokens of the prefix. [tokens]
        sequences: Sequences of the batch. [unitless]
        length: Tokens of each. [tokens]
        num_hidden_layers: Layers. [layers]
        key_value_width: KV heads x head size. [elements]
        query_width: Heads x head size, to which a masked batch expands keys and values. [elements]
        element_bytes: Width of keys. [bytes]

    Returns:
        Size. [bytes]

    Source:
        huggingface/transformers@v5.24.0 src/transformers/cache_utils.py DynamicLayer.update (torch.cat),
        integrations/sdpa_attention.py repeat_kv; huggingface/peft@v0.21.2 src/peft/peft_model.py get_prompt
    """
    joined = (length + virtual_tokens) * 2 * key_value_width
    expanded = virtual_tokens * 2 * query_width
    return sequences * num_hidden_layers * (joined + expanded) * element_bytes
