"""
States an optimizer keeps between steps, and what its step needs for a moment.

Every law of states takes the shapes it applies to, so that small tensors, vectors and factored moments come out
exactly; `catalog/data/optimizers.toml` names the law of each optimizer.
"""

from collections.abc import Sequence
from typing import TypeAlias

from tonnage.units import ceil_div

Shape: TypeAlias = tuple[int, int, int]
"""Rows, columns (1: a vector) and how many tensors of this shape. [elements]"""


def master_copy(*, parameters: int) -> int:
    """
    fp32 copies that a 16-bit model is stepped in.

    Args:
        parameters: Trainable parameters. [unitless]

    Returns:
        Size. [bytes]

    Source:
        deepspeedai/DeepSpeed@edaa72212 deepspeed/runtime/bf16_optimizer.py (fp32_groups_flat_partition); arXiv:1710.03740
        section 3.1
    """
    return 4 * parameters


def elementwise_states(*, shapes: Sequence[Shape], states: int, state_bytes: int, rest: Sequence[Shape] = ()) -> int:
    """
    Tensors of the parameter's own shape: Adam's two moments, Lion's one, momentum.

    Args:
        shapes: Trainable tensors.
        states: State tensors per parameter. [unitless]
        state_bytes: Width of a state; in torch.optim that of the parameter. [bytes]
        rest: Further trainable tensors, treated alike.

    Returns:
        States. [bytes]

    Source:
        pytorch/pytorch@v2.9.0 torch/optim/adamw.py (zeros_like of the parameter); measured:
        tests/measured/training.json#swift-qwen-7b-full-512
    """
    return (_elements(shapes) + _elements(rest)) * states * state_bytes


def blockwise_states(
    *,
    shapes: Sequence[Shape],
    states: int,
    state_bytes: float,
    block_size: int,
    minimum_elements: int,
    rest: Sequence[Shape] = (),
) -> int:
    """
    States in 8 or 4 bit with one fp32 scale per block; small tensors and `rest` keep fp32.

    Args:
        shapes: Trainable tensors.
        states: State tensors per parameter. [unitless]
        state_bytes: Width of a quantized state. [bytes]
        block_size: Elements per scale. [elements]
        minimum_elements: Smaller tensors are not quantized. [elements]
        rest: Tensors the framework excludes (embeddings under the Hugging Face Trainer).

    Returns:
        States with their scales: 2.03 bytes per parameter for two states in 8 bit. [bytes]

    Source:
        bitsandbytes-foundation/bitsandbytes@0.48.1 bitsandbytes/optim/optimizer.py Optimizer2State.init_state;
        pytorch/ao@v0.14.1 torchao/optim/subclass_8bit.py, subclass_4bit.py; measured:
        pytorch/ao torchao/optim/README.md (7B: 12.3 and 18.4 GiB less than fp32 states)
    """
    total = 4 * states * _elements(rest)
    for rows, columns, copies in shapes:
        elements = rows * columns
        if elements < minimum_elements:
            total += 4 * states * elements * copies
        else:
            total += copies * states * (int(elements * state_bytes) + 4 * ceil_div(elements, block_size))
    return total


def factored_states(
    *, shapes: Sequence[Shape], states: int, state_bytes: int, factored_moments: int = 1, rest: Sequence[Shape] = ()
) -> int:
    """
    Second moment kept as row and column sums; vectors keep theirs whole.

    Args:
        shapes: Trainable tensors.
        states: Full moments beside the factored one (Adafactor's momentum, CAME's). [unitless]
        state_bytes: Width of a state. [bytes]
        factored_moments: Factored moments per matrix; a vector has one, whole. [unitless]
        rest: Further trainable tensors, treated alike.

    Returns:
        States; next to nothing without momentum. [bytes]

    Source:
        huggingface/transformers@v4.57.1 src/transformers/optimization.py Adafactor (exp_avg_sq_row, exp_avg_sq_col);
        measured: huggingface/transformers docs model_memory_anatomy (BERT-large, 8.3 bytes per parameter below AdamW)
    """
    total = 0
    for rows, columns, copies in (*shapes, *rest):
        factored = factored_moments * (rows + columns) if columns > 1 else rows
        total += copies * state_bytes * (factored + states * rows * columns)
    return total


def no_states(*, shapes: Sequence[Shape], rest: Sequence[Shape] = ()) -> int:
    """
    Nothing between steps: SGD without momentum, LOMO.

    Args:
        shapes: Trainable tensors.
        rest: Further trainable tensors.

    Returns:
        Zero. [bytes]

    Source:
        pytorch/pytorch@v2.9.0 torch/optim/sgd.py (momentum = 0)
    """
    return 0 * (len(shapes) + len(rest))


def momentum_and_adamw_states(*, shapes: Sequence[Shape], rest: Sequence[Shape], states: int, state_bytes: int) -> int:
    """
    Muon: one momentum of each matrix; embeddings, head and vectors by AdamW.

    Args:
        shapes: Matrices inside layers.
        rest: Embeddings, head, norms, biases.
        states: States per matrix. [unitless]
        state_bytes: Width of a state. [bytes]

    Returns:
        States. [bytes]

    Source:
        KellerJordan/Muon muon.py MuonWithAuxAdam
    """
    vectors = [shape for shape in shapes if shape[1] == 1]
    matrices = [shape for shape in shapes if shape[1] > 1]
    return state_bytes * (states * _elements(matrices) + 2 * (_elements(vectors) + _elements(rest)))


def low_rank_states(
    *,
    shapes: Sequence[Shape],
    rest: Sequence[Shape],
    rank: int,
    states: int,
    state_bytes: float,
    projector_bytes: float,
    rest_state_bytes: float,
    factored: bool = False,
) -> int:
    """
    GaLore and relatives: states of the gradient projected to rank x columns, and the projector.

    Args:
        shapes: Matrices that are projected; the shorter side is.
        rest: What is not: embeddings, head, norms.
        rank: Rank of the projection. [unitless]
        states: States of the projected gradient. [unitless]
        state_bytes: Width of those. [bytes]
        projector_bytes: Width of the projector's elements. [bytes]
        rest_state_bytes: Width of the states of the rest. [bytes]
        factored: The optimizer within keeps sums of rows and columns in fp32 besides (Adafactor).

    Returns:
        States and projectors. [bytes]

    Source:
        jiaweizzhao/GaLore galore_torch/galore_projector.py (proj_type std), arXiv:2403.03507 table 1;
        zhuhanqing/APOLLO apollo_torch/random_projector.py; recorded: tests/oracles/light_methods.json
    """
    total = states * rest_state_bytes * _elements(rest)
    if factored:
        total += factored_states(shapes=rest, states=0, state_bytes=4)
    for rows, columns, copies in shapes:
        short, long = min(rows, columns), max(rows, columns)
        used = min(rank, short)
        total += copies * (states * state_bytes * used * long + projector_bytes * used * short)
        total += 4 * copies * (used + long) if factored else 0
    return int(total)


def foreach_step(*, parameters: int, element_bytes: int) -> int:
    """
    Temporaries of a step over all tensors at once: one copy of the trainable parameters.

    Args:
        parameters: Trainable parameters on the rank. [unitless]
        element_bytes: Width of the states. [bytes]

    Returns:
        Size while the step runs; default of torch.optim on CUDA. [bytes]

    Source:
        pytorch/pytorch@v2.9.0 torch/optim/adamw.py _multi_tensor_adamw (torch._foreach_sqrt); torch.optim documentation,
        `foreach`; measured: tests/measured/training.json#swift-qwen-7b-full-512 (15.9 GiB over 8 bytes x 7.7e9)
    """
    return parameters * element_bytes


def for_loop_step(*, largest_tensor: int, element_bytes: int) -> int:
    """
    Temporaries of a step tensor by tensor.

    Args:
        largest_tensor: Elements of the largest trainable tensor. [elements]
        element_bytes: Width of the states. [bytes]

    Returns:
        Two copies of the largest tensor. [bytes]

    Source:
        pytorch/pytorch@v2.9.0 torch/optim/adamw.py _single_tensor_adamw (denominator, and its square root before)
    """
    return 2 * largest_tensor * element_bytes


def orthogonalisation_step(*, rows: int, columns: int) -> int:
    """
    Newton-Schulz iteration of Muon on the largest matrix, in bf16.

    Args:
        rows: Rows of the matrix. [elements]
        columns: Columns. [elements]

    Returns:
        The iterate and two products of its shorter side, and the next iterate. [bytes]

    Source:
        KellerJordan/Muon muon.py zeropower_via_newtonschulz5 (X, A, B, B @ X)
    """
    short = min(rows, columns)
    return 2 * (2 * rows * columns + 2 * short * short)


def _elements(shapes: Sequence[Shape]) -> int:
    return sum(rows * columns * copies for rows, columns, copies in shapes)
