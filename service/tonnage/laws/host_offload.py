"""What training leaves to the host: pinned copies, buffers of an NVMe swapper, a checkpoint on its way to disk."""

from tonnage.units import BILLION, MILLION

SWAP_BUFFERS = 5
"""buffer_count of offload_param. [unitless]"""
SWAP_ELEMENTS = 100 * MILLION
"""buffer_size of offload_param. [elements]"""
KEPT_ELEMENTS = BILLION
"""max_in_cpu of offload_param. [elements]"""
STATE_BUFFERS = 4
"""buffer_count of offload_optimizer. [unitless]"""
SUB_GROUP = BILLION
"""sub_group_size of ZeRO-3. [elements]"""


def zero_gradients(*, trainable: int) -> int:
    """
    Gradients of an optimizer on the host: reduced ones in 16 bit as they arrive, and their fp32 copy that is stepped with.

    Args:
        trainable: Trainable parameters, over all ranks. [unitless]

    Returns:
        Size: with fp32 weights and two states 18 bytes per parameter. [bytes]

    Source:
        deepspeedai/DeepSpeed@v0.18.2 deepspeed/runtime/zero/stage3.py initialize_optimizer_states (subgroup_gradient_buffer),
        _setup_for_real_optimizer (grad_partitions_flat_buffer); stage_1_and_2.py __init__ (temp_buffer_bit16),
        estimate_zero3_model_states_mem_needs (18 bytes)
    """
    return trainable * (2 + 4)


def copied_gradients(*, trainable: int, element_bytes: int) -> int:
    """
    Pinned copies of parameters and gradients in their own dtype, beside which the step runs on the host.

    Args:
        trainable: Trainable parameters. [unitless]
        element_bytes: Width of the parameters. [bytes]

    Returns:
        Size. [bytes]

    Source:
        pytorch/ao@173b31ec3 torchao/optim/cpu_offload.py CPUOffloadOptimizer.__init__ (p_host, p_host.grad)
    """
    return 2 * trainable * element_bytes


def parameter_swap(*, elements: int, element_bytes: int) -> int:
    """
    What a rank holds on the host of parameters that lie on NVMe: pinned buffers, and those kept because they fit.

    Args:
        elements: Parameters of the rank's shard. [elements]
        element_bytes: Width of a parameter. [bytes]

    Returns:
        Size. [bytes]

    Source:
        deepspeedai/DeepSpeed@v0.18.2 deepspeed/runtime/swap_tensor/partitioned_param_swapper.py
        AsyncPartitionedParameterSwapper._configure_aio, zero/offload_config.py (buffer_count 5, buffer_size 1e8, max_in_cpu 1e9)
    """
    return element_bytes * (SWAP_BUFFERS * SWAP_ELEMENTS + min(elements, KEPT_ELEMENTS))


def state_swap(*, elements: int) -> int:
    """
    Pinned fp32 buffers through which one sub-group's weights, gradients and states pass from and to NVMe.

    Args:
        elements: Trainable parameters of the rank's shard. [elements]

    Returns:
        Size. [bytes]

    Source:
        deepspeedai/DeepSpeed@v0.18.2 deepspeed/runtime/swap_tensor/optimizer_utils.py OptimizerSwapper (SwapBufferManager of
        largest_numel), zero/offload_config.py (buffer_count 4), zero/config.py (sub_group_size 1e9)
    """
    return STATE_BUFFERS * 4 * min(elements, SUB_GROUP)


def state_dict(*, whole: int, on_host: bool, largest_file: int) -> int:
    """
    Weights that the saving rank has on the host: all of them where they were gathered there, else those of one file.

    Args:
        whole: Everything that is saved. [bytes]
        on_host: Gathered to the host first (FSDP's full state dict, ZeRO-3's 16-bit weights, DeepSpeed's clones).
        largest_file: Largest file of a checkpoint. [bytes]

    Returns:
        Size. [bytes]

    Source:
        huggingface/accelerate@v1.15.0 src/accelerate/accelerator.py get_state_dict (offload_to_cpu, rank0_only);
        huggingface/safetensors@v0.8.0 safetensors/torch.py _flatten_as_ptr (every tensor of a file is on the host at once)
    """
    return whole if on_host else min(whole, largest_file)
