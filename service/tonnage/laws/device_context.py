"""What a process takes on a GPU before it allocates anything: the driver's context and library workspaces."""

from tonnage.units import KiB, MiB


def cuda(*, multiprocessors: int) -> int:
    """
    Context of a fresh CUDA process; grows with the multiprocessors, not with the board's memory.

    Args:
        multiprocessors: Streaming multiprocessors of the GPU or MIG slice. [unitless]

    Returns:
        Context, no library loaded yet. [bytes]

    Source:
        measured: ggml-org/llama.cpp PR 23604 (188 SM 555 MiB, 34 SM 107 MiB), unsloth-zoo PR 1053 (142 SM 426 MiB),
        InvokeAI 9413 (82 SM 256 MiB), RTX 5090 free-memory log (170 SM 512 MiB): 3.05 MiB per SM within 5 %
    """
    return multiprocessors * 305 * MiB // 100


def torch_libraries() -> int:
    """
    Kernels that cuBLAS, attention and Triton load into the context of a PyTorch process.

    Returns:
        Usual amount beside the bare context; the band around it is wide. [bytes]

    Source:
        measured: serving and training processes show 0.45 to 0.9 GiB on A100 (108 SM) and 0.5 to 0.62 GiB on H100
        (132 SM), bare contexts being 0.32 and 0.39 GiB
    """
    return 160 * MiB


def torch_libraries_most() -> int:
    """
    Largest library share seen beside the bare context.

    Returns:
        Upper end of the band. [bytes]

    Source:
        measured: 0.9 GiB on A100 less its bare context of 0.32 GiB
    """
    return 600 * MiB


def rocm() -> int:
    """
    Context of a fresh HIP process.

    Returns:
        Context. [bytes]

    Source:
        measured: MI300X 191.98 total, 191.33 GiB free (665 MiB); gfx90a 63.98, 63.15 with 120 MiB capped (730 MiB)
    """
    return 700 * MiB


def cublas_workspace(*, compute_capability_major: int) -> int:
    """
    Workspace of cuBLAS that PyTorch allocates for the first matmul of a stream; it is counted as allocated.

    Args:
        compute_capability_major: 9 for Hopper. [unitless]

    Returns:
        32 MiB from Hopper on, else ":4096:2:16:8" = 2 x 4096 KiB + 8 x 16 KiB. [bytes]

    Source:
        pytorch/pytorch@2.6 aten/src/ATen/cuda/CublasHandlePool.cpp parseChosenWorkspaceSize
    """
    return 32 * MiB if compute_capability_major >= 9 else 2 * 4096 * KiB + 8 * 16 * KiB


def metal() -> int:
    """
    Context of a process on Apple silicon.

    Returns:
        Nothing: Metal keeps it in system memory. [bytes]

    Source:
        assumed; not measured
    """
    return 0
