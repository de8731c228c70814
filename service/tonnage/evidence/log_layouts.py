"""
Layouts of the lines engines and frameworks print about memory, by the phrase that gives them away.

Group names are the names of the facts: `_bytes` is an amount with its unit, the rest are counts. Every repeat
is bounded. Where a layout was seen stands beside it.
"""

import re
from typing import NamedTuple

SIZE = r"-?\d[\d,]{0,19}(?:\.\d{1,9})? ?(?:bytes|[KMG]i?B|B)"
COUNT = r"\d[\d,]{0,18}"
REAL = r"\d{1,12}(?:\.\d{1,9})?"

MEMORY_HINT = re.compile(r"\d ?(?:[KMG]i?B\b|bytes)|out of memory|OutOfMemory", re.IGNORECASE)


class Layout(NamedTuple):
    """One line form."""

    engine: str
    phrase: str
    pattern: re.Pattern[str]
    phase: str | None = None
    decimal: bool = False
    unit: str = "b"
    adds: bool = False
    largest: bool = False


def _layout(engine: str, phrase: str, pattern: str, phase: str | None = None, **more: object) -> Layout:
    pattern = pattern.replace("DEVICE", r"(?:CUDA|ROCm|Vulkan|Metal|SYCL)\d{0,3}")
    for name in re.findall(r"(?<!\?P)<(\w+)>", pattern):
        shape = SIZE if name.endswith("_bytes") else REAL if name.endswith(("ization", "_concurrency")) else COUNT
        pattern = pattern.replace(f"<{name}>", f"(?P<{name}>{shape})")
    return Layout(engine, phrase, re.compile(pattern), phase, **more)  # type: ignore[arg-type]


_PYTORCH = (
    # pytorch c10/cuda/CUDACachingAllocator.cpp, both generations of the text (also HIP)
    _layout("pytorch", "Tried to allocate", r"Tried to allocate <requested_bytes>"),
    _layout("pytorch", "total capacity;", r"\(GPU <gpu_index>; <total_bytes> total capacity"),
    _layout("pytorch", "already allocated", r"<allocated_bytes> already allocated"),
    _layout("pytorch", " free; ", r"; <free_bytes> free; "),
    _layout("pytorch", "reserved in total", r"<reserved_bytes> reserved in total by PyTorch"),
    _layout("pytorch", "total capacity of", r"GPU <gpu_index> has a total capac(?:i)?ty of <total_bytes>"),
    _layout("pytorch", "of which", r"of which <free_bytes> is free"),
    _layout("pytorch", "this process has", r"this process has <process_bytes> memory in use"),
    _layout("pytorch", "Process ", r"Process \d{1,10} has <other_process_bytes> memory in use"),
    _layout("pytorch", "allocated by PyTorch", r"<allocated_bytes> is allocated by PyTorch"),
    _layout("pytorch", "in private pools", r"<private_pool_bytes> allocated in private pools"),
    _layout("pytorch", "but unallocated", r"<reserved_unallocated_bytes> is reserved by PyTorch but unallocated"),
)

_VLLM = (
    _layout("vllm", "Loading model weights took", r"Loading model weights took <weights_bytes>"),
    _layout("vllm", "Model loading took", r"Model loading took <weights_bytes>"),
    _layout("vllm", "# GPU blocks:", r"# GPU blocks: <num_gpu_blocks>"),
    _layout("vllm", "# cuda blocks:", r"# cuda blocks: <num_gpu_blocks>"),
    _layout(
        "vllm",
        "stored in KV cache",
        r"max seq len \(<max_model_len>\) is larger than the maximum number of tokens that can be stored in KV cache"
        r" \(<kv_capacity_tokens>\)",
        "kv_allocation",
    ),
    _layout(
        "vllm",
        "x gpu_memory_utilization",
        r"total_gpu_memory \(<total_bytes>\) x gpu_memory_utilization \(<gpu_memory_utilization>\)",
    ),
    _layout("vllm", "model weights take", r"model weights take <weights_bytes>"),
    _layout("vllm", "non_torch_memory takes", r"non_torch_memory takes <non_torch_bytes>"),
    _layout("vllm", "activation peak memory takes", r"activation peak memory takes <activation_bytes>"),
    _layout("vllm", "reserved for KV Cache is", r"reserved for KV Cache is <kv_cache_bytes>"),
    _layout("vllm", "Memory profiling results", r"total_gpu_memory=<total_bytes>"),
    _layout("vllm", "Memory profiling results", r"peak_torch_memory=<peak_allocated_bytes>"),
    _layout("vllm", "Memory profiling results", r"non_torch_memory=<non_torch_bytes>"),
    _layout("vllm", "Memory profiling results", r"kv_cache_size=<kv_cache_bytes>"),
    _layout(
        "vllm",
        "Maximum concurrency for",
        r"Maximum concurrency for <max_model_len> tokens per request: <max_concurrency>x",
    ),
    _layout("vllm", "Available KV cache memory", r"Available KV cache memory: <kv_available_bytes>"),
    _layout("vllm", "GPU KV cache size", r"GPU KV cache size: <kv_capacity_tokens> tokens"),
    _layout(
        "vllm", "Graph capturing finished", r"Graph capturing finished in [\d.]{1,10} secs?, took <cuda_graph_bytes>"
    ),
    _layout(
        "vllm",
        "To serve at least one request",
        r"max seq len \(<max_model_len>\),? \(?<kv_needed_bytes> KV cache is needed",
        "kv_allocation",
    ),
    _layout(
        "vllm", "available KV cache memory", r"available KV cache memory \(<kv_available_bytes>\)", "kv_allocation"
    ),
    _layout("vllm", "estimated maximum model length", r"estimated maximum model length is <estimated_max_model_len>"),
    _layout("vllm", "Estimated CUDA graph memory", r"Estimated CUDA graph memory: <estimated_cuda_graph_bytes>"),
    _layout("vllm", "CUDA graph pool memory", r"CUDA graph pool memory: <cuda_graph_bytes> \(actual\)"),
    _layout("vllm", "Desired GPU memory", r"on device (?:[\w:]{1,20} )?\((?P<free_bytes>[\d.]{1,12})/", unit="gib"),
    _layout("vllm", "Desired GPU memory", r"utilization is \(<gpu_memory_utilization>, <claim_bytes>\)"),
    _layout("vllm", "Actual usage", r"<weights_bytes> for weights?"),
    _layout("vllm", "Actual usage", r"<activation_bytes> for peak activation"),
    _layout("vllm", "Actual usage", r"<non_torch_bytes> for non-torch memory"),
    _layout("vllm", "Actual usage", r"<cuda_graph_bytes> for [A-Z]{3,4} ?[Gg]raph memory"),
    _layout(
        "vllm", "No available memory for the cache blocks", r"No available memory for the cache blocks", "kv_allocation"
    ),
    _layout(
        "vllm",
        "Free memory on device",
        r"Free memory on device (?:[\w:]{1,20} )?\((?P<free_bytes>[\d.]{1,12})/<total_bytes>\) on startup is less than desired"
        r" GPU memory utilization \(<gpu_memory_utilization>, <claim_bytes>\)",
        "load",
        unit="gib",
    ),
    _layout(
        "vllm",
        "Mamba cache blocks",
        r"max_num_seqs \(<max_num_seqs>\) exceeds available Mamba cache blocks \(<mamba_blocks>\)",
        "kv_allocation",
    ),
    _layout(
        "vllm",
        "warming up sampler",
        r"out of memory occurred when warming up sampler with <max_num_seqs> dummy",
        "profile",
    ),
)

_SGLANG = (
    _layout(
        "sglang",
        "Load weight end",
        r"(?:TP(?P<rank>\d{1,4}).{0,20})?Load weight end\..{0,200}?mem usage=<weights_bytes>",
    ),
    _layout("sglang", "KV Cache is allocated", r"KV Cache is allocated\..{0,80}?#tokens: <kv_capacity_tokens>"),
    _layout("sglang", "K size:", r"[KV] size: <kv_cache_bytes>", adds=True),
    _layout("sglang", "KV size:", r"KV size: <kv_cache_bytes>"),
    _layout("sglang", "max_total_num_tokens=", r"max_total_num_tokens=<kv_capacity_tokens>"),
    _layout("sglang", "Memory pool end", r"Memory pool end\. avail mem=<free_bytes>"),
    _layout("sglang", "Capture cuda graph end", r"Capture cuda graph end\..{0,60}?mem usage=<cuda_graph_bytes>"),
    _layout("sglang", "Capture cuda graph end", r"Capture cuda graph end\..{0,90}?avail mem=<free_bytes>"),
    _layout("sglang", "Capture cuda graph failed", r"Capture cuda graph failed", "cuda_graph"),
    _layout(
        "sglang", "in AlignedAllocator", r"\w{1,40} with size (?P<requested_bytes>\d{1,20}) and alignment", "prefill"
    ),
    _layout("sglang", "Not enough memory", r"Not enough memory.{0,80}?mem-fraction-static", "kv_allocation"),
)

_LLAMA_CPP = (
    _layout("llama.cpp", "cudaMalloc failed", r"allocating <requested_bytes> on device <gpu_index>: cudaMalloc failed"),
    _layout("llama.cpp", "buffer for kv cache", r"failed to allocate buffer for kv cache", "kv_allocation"),
    _layout("llama.cpp", "gallocr_reserve", r"allocate \w{1,20} buffer of size (?P<requested_bytes>\d{1,20})", "prefill"),
    _layout("llama.cpp", "alloc_tensor_range", r"allocate \w{1,20} buffer of size (?P<requested_bytes>\d{1,20})", "load"),
    _layout("llama.cpp", "allocate compute buffers", r"failed to allocate compute buffers", "prefill"),
    _layout("llama.cpp", "KV self size", r"KV self size"),
    _layout("llama.cpp", "output buffer size", r"output buffer size"),
    _layout("llama.cpp", "_Host", r"_Host {1,4}\w{1,10} buffer size"),
    _layout("llama.cpp", "CPU", r"CPU(?:_Mapped)? {1,4}\w{1,10} buffer size"),
    _layout("llama.cpp", "unable to allocate", r"unable to allocate \w{1,20} buffer", "load"),
    _layout("llama.cpp", "model buffer size", r"DEVICE model buffer size = {1,12}<weights_bytes>", adds=True),
    _layout("llama.cpp", "KV buffer size", r"DEVICE KV buffer size = {1,12}<kv_cache_bytes>", adds=True),
    _layout("llama.cpp", "RS buffer size", r"DEVICE RS buffer size = {1,12}<recurrent_state_bytes>", adds=True),
    _layout("llama.cpp", "compute buffer size", r"DEVICE compute buffer size = {1,12}<compute_bytes>", adds=True),
    Layout(
        "llama.cpp",
        "memory_breakdown_print",
        re.compile(
            r"\| {1,8}- (?!Host).{1,60}?\| {1,8}(?P<total_bytes>\d{1,9}) = {1,8}(?P<free_bytes>\d{1,9}) "
            r"\+ \( {0,8}(?P<self_bytes>\d{1,9}) = {1,8}(?P<weights_bytes>\d{1,9}) \+ {1,8}(?P<kv_cache_bytes>\d{1,9}) "
            r"\+ {1,8}(?P<compute_bytes>\d{1,9}) ?\) \+ {1,12}(?P<unaccounted_bytes>\d{1,9})"
        ),
        unit="mib",
    ),
    Layout("llama.cpp", "memory_breakdown_print", re.compile(r"memory breakdown \[MiB\]|- Host ")),
)  # fmt: skip

_OLLAMA = (
    _layout("ollama", "layers.offload=", r"layers\.model=<layers_model> layers\.offload=<layers_offloaded>"),
    _layout("ollama", "memory.available=", r'memory\.available="\[<free_bytes>'),
    _layout("ollama", "memory.required.full=", r'memory\.required\.full="<required_full_bytes>'),
    _layout("ollama", "memory.required.kv=", r'memory\.required\.kv="<kv_cache_bytes>'),
    _layout("ollama", "memory.weights.total=", r'memory\.weights\.total="<weights_bytes>'),
)

_TENSORRT_LLM = (
    _layout(
        "tensorrt-llm",
        "Requested amount of GPU memory",
        r"Requested amount of GPU memory \(<requested_bytes>\)",
        "load",
    ),
    _layout("tensorrt-llm", "[virtualMemoryBuffer", r"Error Code 2: OutOfMemory", "load"),
    _layout("tensorrt-llm", "for k/v cache", r"Allocate <kv_cache_bytes> for k/v cache"),
    _layout("tensorrt-llm", "in paged KV cache", r"Using <kv_capacity_tokens> tokens in paged KV cache"),
    _layout("tensorrt-llm", "Loaded engine size", r"Loaded engine size: <weights_bytes>"),
    _layout("tensorrt-llm", "MemUsageChange", r"MemUsageChange"),
    _layout(
        "tensorrt-llm",
        "in paged KV cache",
        r"Allocated <kv_cache_bytes> for max tokens in paged KV cache \(<kv_capacity_tokens>\)",
    ),
    _layout(
        "tensorrt-llm", "Peak memory during memory usage profiling", r"\(torch \+ non-torch\): <peak_device_bytes>"
    ),
    _layout(
        "tensorrt-llm",
        "when calculating max tokens",
        r"available KV cache memory when calculating max tokens: <kv_available_bytes>",
    ),
)

_TRAINING = (
    # deepspeed/runtime/utils.py see_memory_usage: divides by 1024^3, prints GB
    _layout("deepspeed", "Max_MA", r"(?<![_\w])MA <allocated_bytes>"),
    _layout("deepspeed", "Max_MA", r"Max_MA <peak_allocated_bytes>", largest=True),
    _layout("deepspeed", "Max_CA", r"(?<![_\w])CA <reserved_bytes>"),
    _layout("deepspeed", "Max_CA", r"Max_CA <peak_reserved_bytes>", largest=True),
    _layout("deepspeed", "CPU Virtual Memory", r"CPU Virtual Memory: {1,4}used = <host_bytes>"),
    # axolotl/utils/bench.py: allocated (+ cached but free, + outside the allocator)
    _layout("axolotl", "after model load", r"usage after model load: <weights_bytes>"),
    _layout("axolotl", "while training", r"training: <allocated_bytes> \(\+<cache_bytes> cache, \+<non_torch_bytes> misc"),
    _layout("axolotl", "GPU memory usage", r"GPU memory usage"),
    # litgpt and mlx-lm divide by 10^9
    _layout("litgpt", "Memory used:", r"Memory used: <peak_allocated_bytes>", decimal=True),
    _layout("mlx", "Peak memory:", r"Peak memory: <peak_allocated_bytes>", decimal=True),
    _layout("mlx", "maximum allowed buffer size", r"Attempting to allocate <requested_bytes>", "prefill"),
    _layout("mlx", "maximum allowed buffer size", r"maximum allowed buffer size of <limit_bytes>", "prefill"),
    # torchtune/training/memory.py, torchtitan metrics, Unsloth notebooks (bytes / 1024^3)
    _layout("torchtune", "peak memory alloc", r"(?i:GPU peak memory allocation: )<peak_allocated_bytes>", largest=True),
    _layout("torchtune", "peak memory reserved", r"(?i:GPU peak memory reserved: )<peak_reserved_bytes>", largest=True),
    _layout("torchtitan", "memory: ", r"step: .{0,120}?memory: {1,3}<peak_reserved_bytes>", largest=True),
    _layout("unsloth", "Peak reserved memory = ", r"Peak reserved memory = <peak_reserved_bytes>"),
    _layout("nvidia-smi", "MiB /", r"(?P<peak_device_bytes>\d{1,7}MiB) / {1,4}(?P<total_bytes>\d{1,7}MiB)", largest=True),
)  # fmt: skip

LAYOUTS = (*_PYTORCH, *_VLLM, *_SGLANG, *_LLAMA_CPP, *_OLLAMA, *_TENSORRT_LLM, *_TRAINING)

FAILURE_PHASES = (
    # innermost first: an out-of-memory inside recomputation is a backward one, whatever forward() it runs
    ("optimizer.step", "optimizer_step"),
    ("_foreach_", "optimizer_step"),
    ("loss.backward", "backward"),
    ("accelerator.backward", "backward"),
    ("autograd.backward", "backward"),
    ("run_backward", "backward"),
    ("evaluation_loop", "evaluation"),
    ("merge_and_unload", "merge"),
    ("save_pretrained", "export"),
    ("capture_model", "cuda_graph"),
    ("graph capture", "cuda_graph"),
    ("determine_num_available_blocks", "profile"),
    ("determine_available_memory", "profile"),
    ("profile_run", "profile"),
    ("initialize_kv_cache", "kv_allocation"),
    ("from_pretrained", "load"),
    ("load_model", "load"),
    ("load_state_dict", "load"),
    ("compute_loss", "forward"),
    ("training_step", "forward"),
    ("execute_model", "prefill"),
    (".generate(", "decode"),
)
