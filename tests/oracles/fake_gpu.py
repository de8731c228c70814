"""
A CUDA device that computes nothing, and a ledger of every storage on it. Import it before torch.

What a CPU build of torch does differently from a CUDA build is mended here, each with its reason. Not seen at all:
cuBLAS workspaces, the CUDA context, NCCL, compiled or Triton kernels, and temporaries inside other kernels.
"""

import ctypes
import importlib.util
import subprocess
import sys
import weakref
from pathlib import Path

HERE = Path(__file__).parent


def load_fake_cuda():
    """Builds and loads the shim; it has to be there before torch is imported."""
    root = Path(importlib.util.find_spec("torch").origin).parent
    source, library = HERE / "fake_cuda.cpp", HERE / "build" / "libfake_cuda.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        library.parent.mkdir(exist_ok=True)
        flags = [
            "-std=c++20",
            "-O1",
            "-shared",
            "-fPIC",
            f"-I{root}/include",
            f"-L{root}/lib",
            f"-Wl,-rpath,{root}/lib",
        ]
        subprocess.run(
            ["g++", *flags, str(source), "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10", "-o", str(library)], check=True
        )
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


load_fake_cuda()

import torch  # noqa: E402  (fake CUDA comes first)
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402  (fake CUDA comes first)
from torch.utils._pytree import tree_leaves  # noqa: E402  (fake CUDA comes first)

sys.path.insert(0, str(HERE))
from caching_allocator import CachingAllocator, rounded  # noqa: E402  (fake CUDA comes first)

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


# ---- what a CUDA build does and a CPU build does not ----


class FusedSilu(torch.autograd.Function):
    """One kernel on CUDA; a CPU build decomposes the backward pass into five temporaries."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.ops.aten.silu.default(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return torch.empty_like(x)


_math_attention = torch.nn.functional.scaled_dot_product_attention


def cuda_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """The kernel a CUDA build chooses: flash without a mask, memory-efficient with one, else the math path."""
    half = (torch.bfloat16, torch.float16)
    if torch.is_autocast_enabled("cuda") and query.dtype not in half:
        query, key, value = (t.to(torch.bfloat16) for t in (query, key, value))
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(torch.bfloat16)
    if attn_mask is None and query.dtype in half and query.shape[-1] == value.shape[-1] <= 256:
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        return flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    if query.shape[1] == key.shape[1]:
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                zero = torch.zeros((), dtype=query.dtype, device=query.device)
                attn_mask = torch.where(attn_mask, zero, float("-inf"))
            attn_mask = attn_mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        return efficient(query, key, value, attn_mask, torch.is_grad_enabled(), dropout_p, is_causal, scale=scale)[0]
    return _math_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def flash_backward_workspace(arguments):
    """fp32 accumulator of dq, softmax sums, and dk/dv for all query heads (flash_api.cpp mha_bwd)."""
    query, key = arguments[1], arguments[2]
    batch, heads, length, head_dim = query.shape
    padded = -(-length // 128) * 128
    rounded_dim = -(-head_dim // 32) * 32 if head_dim <= 128 else (192 if head_dim <= 192 else 256)
    sizes = [batch * heads * padded * rounded_dim * 4, batch * heads * padded * 4]
    if key.shape[1] != heads:
        sizes += [batch * key.shape[2] * heads * head_dim * query.element_size()] * 2
    return sizes


def mend_environment():
    """Answers that depend on a real GPU or on tensor data, as a CUDA machine with unpadded input gives them."""
    import torch.cuda.amp.common as amp
    import transformers.masking_utils as masks

    torch.nn.functional.silu = lambda x, inplace=False: FusedSilu.apply(x)
    torch.nn.functional.scaled_dot_product_attention = cuda_attention
    amp.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    masks.find_packed_sequence_indices = lambda *_, **__: None


# ---- the ledger ----


class Ledger(TorchDispatchMode):
    """Every storage on the device, from its allocation to its release, in order."""

    def __init__(self):
        super().__init__()
        self.allocated = 0
        self.phase = "load"
        self.peaks, self.peak_operators, self.events, self.live = {}, {}, [], {}
        self.operator = None
        self._next = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operator = func
        if self._accumulates_in_place(func, args):
            return args[0]
        workspace = []
        if func._schema.name == "aten::_scaled_dot_product_flash_attention_backward":
            workspace = [self._allocate(size) for size in flash_backward_workspace(args)]
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            self.see(tensor)
        for number, size in workspace:
            self._release(number, size)
        return result

    def _accumulates_in_place(self, func, args):
        """
        Sums of gradients, which the engine makes in place for plain tensors but never for tensor subclasses
        (torch/csrc/autograd/input_buffer.cpp can_accumulate_inplace).
        """
        if func is not torch.ops.aten.add.Tensor or self.phase != "backward" or torch.is_grad_enabled():
            return False
        first, second = args[:2]
        return isinstance(second, torch.Tensor) and first.shape == second.shape and first.dtype == second.dtype

    def see(self, tensor):
        """Counts a tensor's storage once."""
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cuda":
            return
        storage = tensor.untyped_storage()
        known = self.live.get(id(storage))
        if storage.nbytes() == 0 or (known is not None and known() is storage):
            return
        number, size = self._allocate(storage.nbytes())
        key = id(storage)
        self.live[key] = weakref.ref(storage, lambda ref: self._forget(key, ref, number, size))

    def _forget(self, key, ref, number, size):
        if self.live.get(key) is ref:
            del self.live[key]
        self._release(number, size)

    def _allocate(self, size):
        self._next += 1
        self.events.append((self._next, size))
        self.allocated += rounded(size)
        if self.allocated > self.peaks.get(self.phase, 0):
            self.peaks[self.phase] = self.allocated
            self.peak_operators[self.phase] = str(self.operator)
        return self._next, size

    def _release(self, number, size):
        self.events.append((number, 0))
        self.allocated -= rounded(size)

    def reserved(self):
        """Peak of the caching allocator over the whole record."""
        allocator, blocks = CachingAllocator(), {}
        for number, size in self.events:
            if size:
                blocks[number] = allocator.malloc(size)
            else:
                allocator.release(blocks.pop(number))
        return allocator.peak_reserved


def bytes_of(tensors):
    storages = {
        id(t.untyped_storage()): t.untyped_storage().nbytes()
        for t in tensors
        if t is not None and t.device.type == "cuda"
    }
    return sum(rounded(size) for size in storages.values())
