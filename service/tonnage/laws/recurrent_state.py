"""State of recurrent layers: per sequence, not per token."""

from tonnage.laws.sharding import even_part


def convolution(*, channels: int, kernel: int, element_bytes: int, tensor_parallel_size: int = 1) -> int:
    """
    Last inputs a causal convolution needs.

    Args:
        channels: Channels over all ranks. [elements]
        kernel: Width of the convolution. [tokens]
        element_bytes: dtype of the convolution state. [bytes]
        tensor_parallel_size: Ranks. [unitless]

    Returns:
        State of one sequence in one layer on one rank. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/mamba/mamba_utils.py MambaStateShapeCalculator (conv_kernel - 1)
    """
    part = even_part(elements=channels, tensor_parallel_size=tensor_parallel_size, name="convolution channels")
    return part * max(kernel - 1, 0) * element_bytes


def matrix(*, heads: int, rows: int, columns: int, element_bytes: int, tensor_parallel_size: int = 1) -> int:
    """
    Matrix state of every head.

    Args:
        heads: State heads over all ranks. [heads]
        rows: Rows of one head's state. [elements]
        columns: Columns of one head's state. [elements]
        element_bytes: dtype of the state. [bytes]
        tensor_parallel_size: Ranks. [unitless]

    Returns:
        State of one sequence in one layer on one rank. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/mamba/mamba_utils.py MambaStateShapeCalculator (temporal state)
    """
    part = even_part(elements=heads, tensor_parallel_size=tensor_parallel_size, name="state heads")
    return part * rows * columns * element_bytes


def mamba1(
    *,
    inner_size: int,
    state_size: int,
    conv_kernel: int,
    conv_bytes: int,
    state_bytes: int,
    tensor_parallel_size: int = 1,
) -> int:
    """
    Mamba-1: convolution over the inner width and one state vector per channel.

    Args:
        inner_size: Inner width (d_inner). [elements]
        state_size: State vector (d_state). [elements]
        conv_kernel: Width of the convolution. [tokens]
        conv_bytes: dtype of the convolution state. [bytes]
        state_bytes: dtype of the SSM state. [bytes]
        tensor_parallel_size: Ranks. [unitless]

    Returns:
        State of one sequence in one layer on one rank. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/mamba/mamba_utils.py mamba1_state_shape
    """
    tp = tensor_parallel_size
    state = matrix(heads=inner_size, rows=1, columns=state_size, element_bytes=state_bytes, tensor_parallel_size=tp)
    return state + convolution(
        channels=inner_size, kernel=conv_kernel, element_bytes=conv_bytes, tensor_parallel_size=tp
    )


def mamba2_convolution_channels(
    *, inner_size: int, n_groups: int, state_size: int, tensor_parallel_size: int = 1
) -> int:
    """
    Channels of Mamba-2's convolution; groups that the ranks do not divide are replicated until they do.

    Args:
        inner_size: Inner width. [elements]
        n_groups: Groups of B and C. [unitless]
        state_size: State size (d_state). [elements]
        tensor_parallel_size: Ranks. [unitless]

    Returns:
        Channels over all ranks. [elements]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/mamba/mamba_utils.py mamba2_state_shape (extra_groups_for_head_shards)
    """
    groups = n_groups if n_groups % tensor_parallel_size == 0 else max(n_groups, tensor_parallel_size)
    return inner_size + 2 * groups * state_size


def mamba2(
    *,
    inner_size: int,
    heads: int,
    head_dim: int,
    state_size: int,
    n_groups: int,
    conv_kernel: int,
    conv_bytes: int,
    state_bytes: int,
    tensor_parallel_size: int = 1,
) -> int:
    """
    Mamba-2: convolution over x, B and C, and a head_dim x state_size matrix per head.

    Args:
        inner_size: Inner width. [elements]
        heads: SSM heads. [heads]
        head_dim: Width of a head. [elements]
        state_size: State size (d_state). [elements]
        n_groups: Groups of B and C. [unitless]
        conv_kernel: Width of the convolution. [tokens]
        conv_bytes: dtype of the convolution state. [bytes]
        state_bytes: dtype of the SSM state. [bytes]
        tensor_parallel_size: Ranks. [unitless]

    Returns:
        State of one sequence in one layer on one rank. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/mamba/mamba_utils.py mamba2_state_shape
    """
    tp = tensor_parallel_size
    channels = mamba2_convolution_channels(
        inner_size=inner_size, n_groups=n_groups, state_size=state_size, tensor_parallel_size=tp
    )
    state = matrix(heads=heads, rows=head_dim, columns=state_size, element_bytes=state_bytes, tensor_parallel_size=tp)
    return state + convolution(channels=channels, kernel=conv_kernel, element_bytes=conv_bytes, tensor_parallel_size=tp)


def gated_delta(
    *,
    num_key_heads: int,
    key_head_dim: int,
    num_value_heads: int,
    value_head_dim: int,
    conv_kernel: int,
    conv_bytes: int,
    state_bytes: int,
    tensor_parallel_size: int = 1,
) -> int:
    """
    Gated delta net: convolution over q, k and v, and a key x value matrix per value head.

    Args:
        num_key_heads: Key heads. [heads]
        key_head_dim: Width of a key head. [elements]
        num_value_heads: Value heads. [heads]
        value_head_dim: Width of a value head. [elements]
        conv_kernel: Width of the convolution. [tokens]
        conv_bytes: dtype of the convolution state. [bytes]
        state_bytes: dtype of the matrix state. [bytes]
        tensor_parallel_size: Ranks. [unitless]

    Returns:
        State of one sequence in one layer on one rank. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/mamba/mamba_utils.py gated_delta_net_state_shape
    """
    tp = tensor_parallel_size
    channels = 2 * num_key_heads * key_head_dim + num_value_heads * value_head_dim
    state = matrix(
        heads=num_value_heads, rows=value_head_dim, columns=key_head_dim,
        element_bytes=state_bytes, tensor_parallel_size=tp,
    )  # fmt: skip
    return state + convolution(channels=channels, kernel=conv_kernel, element_bytes=conv_bytes, tensor_parallel_size=tp)


def kda(
    *,
    heads: int,
    head_dim: int,
    conv_kernel: int,
    conv_bytes: int,
    state_bytes: int,
    tensor_parallel_size: int = 1,
) -> int:
    """
    Kimi delta attention: separate convolutions over q, k and v, and a square matrix per head.

    Args:
        heads: Heads. [heads]
        head_dim: Width of a head. [elements]
        conv_kernel: Width of the convolutions. [tokens]
        conv_bytes: dtype of the convolution states. [bytes]
        state_bytes: dtype of the matrix state. [bytes]
        tensor_parallel_size: Ranks. [unitless]

    Returns:
        State of one sequence in one layer on one rank. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/mamba/mamba_utils.py kda_state_shape
    """
    return gated_delta(
        num_key_heads=heads, key_head_dim=head_dim, num_value_heads=heads, value_head_dim=head_dim,
        conv_kernel=conv_kernel, conv_bytes=conv_bytes, state_bytes=state_bytes,
        tensor_parallel_size=tensor_parallel_size,
    )  # fmt: skip


def lightning(*, heads: int, head_dim: int, state_bytes: int, tensor_parallel_size: int = 1) -> int:
    """
    Lightning (linear) attention: a square matrix per head, no convolution.

    Args:
        heads: Heads. [heads]
        head_dim: Width of a head. [elements]
        state_bytes: dtype of the matrix state. [bytes]
        tensor_parallel_size: Ranks. [unitless]

    Returns:
        State of one sequence in one layer on one rank. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/mamba/mamba_utils.py linear_attention_state_shape
    """
    return matrix(
        heads=heads, rows=head_dim, columns=head_dim, element_bytes=state_bytes,
        tensor_parallel_size=tensor_parallel_size,
    )  # fmt: skip


def short_conv(*, channels: int, conv_kernel: int, conv_bytes: int, tensor_parallel_size: int = 1) -> int:
    """
    Gated short convolution (LFM2): the convolution's inputs only.

    Args:
        channels: Channels. [elements]
        conv_kernel: Width of the convolution. [tokens]
        conv_bytes: dtype of the convolution state. [bytes]
        tensor_parallel_size: Ranks. [unitless]

    Returns:
        State of one sequence in one layer on one rank. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/mamba/mamba_utils.py short_conv_state_shape
    """
    return convolution(
        channels=channels, kernel=conv_kernel, element_bytes=conv_bytes, tensor_parallel_size=tensor_parallel_size
    )
