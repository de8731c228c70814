"""
The engine's own command line: every setting of a card as the flag, variable or note that makes the server run with it.

Source:
    vllm-project/vllm@0.19.0 vllm/engine/arg_utils.py; sgl-project/sglang@0.5.10 python/sglang/srt/server_args.py;
    NVIDIA/TensorRT-LLM tensorrt_llm/commands/serve.py; ggml-org/llama.cpp common/arg.cpp;
    huggingface/transformers@4.57.1 src/transformers/commands/serving.py; ml-explore/mlx-lm@0.29.1 mlx_lm/server.py
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tonnage.fit.technical import Technical
from tonnage.spec.card import ModelCard, ServingCommon
from tonnage.spec.engine import version_key
from tonnage.units import parse_size

Flags = Iterator[tuple[str, Any]]
DEMAND = frozenset(
    {"engine_version", "concurrency", "input_tokens", "output_tokens", "shared_prefix_tokens", "batch_size"}
)
"""Fields that say what the server is for, not how it is started."""
_FLASH_ATTN_VALUE = 6325
"""First build of llama.cpp whose -fa takes on, off or auto; before, it stands alone. [build number]"""
_SWAP_UNTIL = (0, 11)
"""vLLM's V0 engine, the last that swaps, went with 0.11."""
_CACHES_PREFIXES = (0, 6, 5)
"""vLLM caches prefixes by itself in engines from here on; before, there is nothing to switch off."""
_POSITIONAL = (5,)
"""Transformers from here on takes the model that is served as its argument."""
_DTYPES = {
    "bf16": "bfloat16", "fp16": "float16", "f16": "float16", "half": "float16", "fp32": "float32", "f32": "float32",
    "float": "float32",
}  # fmt: skip
_GGML = {"kv-fp16": "f16", "kv-fp32": "f32"}
_KV_DTYPES: dict[str, dict[str, str]] = {
    "vllm": {"kv-bf16": "bfloat16", "kv-fp16": "float16", "kv-fp8-e4m3": "fp8"},
    "sglang": {"kv-nvfp4": "fp4_e2m1"},
    "tgi": {"kv-fp8-e4m3": "fp8_e4m3fn"},
    "llama.cpp": _GGML,
    "ollama": _GGML,
}
"""Cache types that an engine spells otherwise than the catalogue without its prefix."""
_SPECULATIVE = {"eagle": "EAGLE", "eagle3": "EAGLE3", "mtp": "EAGLE", "nextn": "EAGLE", "standalone": "STANDALONE"}


class Server(NamedTuple):
    """How an engine is started."""

    head: Callable[[str, Any], list[str]]
    flags: Callable[[Technical, Any], Flags]
    said: frozenset[str]
    """Fields of its card that its flags or its environment say."""


def command(technical: Technical, serving: ServingCommon, model: str) -> Iterator[str]:
    """
    The command that starts a server as the card describes it.

    Args:
        technical: Layout and format.
        serving: The card's settings.
        model: Repository, or the place of the weights.
    """
    server = SERVERS[_tag(serving)]
    yield from server.head(model, serving)
    yield from written(server.flags(technical, serving))


def unsaid(serving: ServingCommon) -> tuple[str, ...]:
    """Settings of a card that its engine's command line has no flag for, by name."""
    server = SERVERS[_tag(serving)]
    open_ones = [name for name in serving.__struct_fields__ if name not in server.said | DEMAND]
    defaults = type(serving)()
    return tuple(name for name in open_ones if getattr(serving, name) != getattr(defaults, name))


def written(flags: Flags) -> Iterator[str]:
    """Flags as words: a true one stands alone, a false or absent one not at all, several values follow one another."""
    for flag, value in flags:
        if value is True:
            yield flag
        elif isinstance(value, dict):
            yield from (flag, json.dumps(value))
        elif value is not None and value is not False:
            yield from (flag, f"{value:g}" if isinstance(value, float) else str(value))


def kv_dtypes(technical: Technical, serving: Any) -> tuple[str | None, str | None]:
    """The stated cache types of keys and values as the engine spells them; None for its own choice."""
    formats = technical.variant.workload.kv_formats
    if serving.kv_cache_dtype == "auto" or formats is None:
        return None, None
    spelt = _KV_DTYPES[_tag(serving)]
    key, value = (spelt.get(kind.id, kind.id.removeprefix("kv-").replace("-", "_")) for kind in formats)
    return key, value


def _dtype(serving: Any) -> str | None:
    stated: str | None = serving.dtype
    return None if stated is None else _DTYPES.get(stated.lower(), stated)


def quantization(technical: Technical) -> str | None:
    """Formats vLLM and SGLang make while loading a 16-bit checkpoint."""
    family = technical.variant.weight_format.family
    own = technical.variant.workload.model.weight_format == technical.variant.weight_format.id
    return None if own else {"bitsandbytes": "bitsandbytes", "fp8": "fp8"}.get(family)


def _tag(serving: ServingCommon) -> str:
    return str(serving.__struct_config__.tag)


def _above_one(size: int) -> int | None:
    return size if size > 1 else None


def _before(serving: Any, version: tuple[int, ...]) -> bool:
    """Whether a stated version is older; an unstated one is the newest."""
    return serving.engine_version is not None and version_key(serving.engine_version) < version


def _bytes(size: Any) -> int | None:
    return None if size is None else parse_size(size)


def _draft(serving: Any) -> str | None:
    model = serving.speculative.model
    return model.id if isinstance(model, ModelCard) else model


def _vllm(t: Technical, s: Any) -> Flags:
    yield "--dtype", _dtype(s)
    yield "--tensor-parallel-size", _above_one(t.placement.tensor_parallel_size)
    yield "--pipeline-parallel-size", _above_one(t.placement.pipeline_parallel_size)
    yield "--data-parallel-size", _above_one(t.placement.data_parallel_size)
    yield "--enable-expert-parallel", t.placement.expert_parallel_size > 1 or s.enable_expert_parallel is True
    yield "--max-model-len", s.max_model_len
    yield "--max-num-seqs", s.max_num_seqs
    yield "--max-num-batched-tokens", s.max_num_batched_tokens
    yield "--gpu-memory-utilization", s.gpu_memory_utilization
    yield "--kv-cache-memory-bytes", _bytes(s.kv_cache_memory_bytes)
    yield "--kv-cache-dtype", kv_dtypes(t, s)[0]
    yield "--block-size", s.block_size
    yield "--enforce-eager", s.enforce_eager is True
    yield "--enable-prefix-caching", s.enable_prefix_caching is True
    yield "--no-enable-prefix-caching", s.enable_prefix_caching is False and not _before(s, _CACHES_PREFIXES)
    yield "--compilation-config", _captured(s)
    yield "--quantization", quantization(t)
    yield "--cpu-offload-gb", s.cpu_offload_gb
    yield "--swap-space", s.swap_space if _before(s, _SWAP_UNTIL) else None
    yield from _vllm_parts(s)


def _captured(s: Any) -> dict[str, Any] | None:
    """Sizes of graphs in the form that every release with torch.compile reads."""
    stated = {
        "cudagraph_capture_sizes": s.cudagraph_capture_sizes,
        "max_cudagraph_capture_size": s.cudagraph_max_capture_size,
    }
    return {name: value for name, value in stated.items() if value is not None} or None


def _vllm_parts(s: Any) -> Flags:
    if s.lora is not None:
        yield "--enable-lora", True
        yield "--max-loras", s.lora.max_loras
        yield "--max-lora-rank", s.lora.max_lora_rank
    if s.speculative is not None:
        draft = _draft(s)
        stated = {"method": s.speculative.method, "num_speculative_tokens": s.speculative.num_speculative_tokens}
        yield "--speculative-config", stated if draft is None else stated | {"model": draft}
    if s.multimodal is not None:
        kinds = {
            "image": s.multimodal.images_per_prompt,
            "video": s.multimodal.videos_per_prompt,
            "audio": s.multimodal.audios_per_prompt,
        }
        yield "--limit-mm-per-prompt", {kind: most for kind, most in kinds.items() if most is not None} or None
        yield "--language-model-only", s.multimodal.language_model_only
        yield "--mm-encoder-tp-mode", s.multimodal.encoder_tp_mode


def _sglang(t: Technical, s: Any) -> Flags:
    yield "--dtype", _dtype(s)
    yield "--tp-size", _above_one(t.placement.tensor_parallel_size)
    yield "--pp-size", _above_one(t.placement.pipeline_parallel_size)
    yield "--dp-size", s.dp_size if s.enable_dp_attention else _above_one(t.placement.data_parallel_size)
    yield "--enable-dp-attention", s.enable_dp_attention is True
    yield "--ep-size", _above_one(t.placement.expert_parallel_size)
    yield "--context-length", s.max_model_len
    yield "--mem-fraction-static", s.gpu_memory_utilization
    yield "--max-running-requests", s.max_num_seqs
    yield "--chunked-prefill-size", s.chunked_prefill_size
    yield "--page-size", s.page_size
    yield "--cuda-graph-max-bs", s.cuda_graph_max_bs
    yield "--disable-radix-cache", s.disable_radix_cache is True
    yield "--disable-cuda-graph", s.disable_cuda_graph is True
    yield "--kv-cache-dtype", kv_dtypes(t, s)[0]
    yield "--quantization", quantization(t)
    if s.lora is not None:
        yield "--enable-lora", True
        yield "--max-loras-per-batch", s.lora.max_loras
        yield "--max-lora-rank", s.lora.max_lora_rank
    if s.speculative is not None:
        yield "--speculative-algorithm", _SPECULATIVE.get(s.speculative.method.lower(), s.speculative.method.upper())
        yield "--speculative-draft-model-path", _draft(s)
        yield "--speculative-num-draft-tokens", s.speculative.num_speculative_tokens


def _llama_cpp(t: Technical, s: Any) -> Flags:
    yield "-c", s.max_model_len
    yield "-ngl", 999 if s.n_gpu_layers is None else s.n_gpu_layers
    yield "-np", s.n_parallel
    yield "-b", s.n_batch
    yield "-ub", s.n_ubatch
    yield "-fa", _flash_attn(s)
    keys, values = kv_dtypes(t, s)
    yield "-ctk", keys
    yield "-ctv", values
    yield "--kv-unified", s.kv_unified is True
    yield "--no-kv-unified", s.kv_unified is False
    yield "--swa-full", s.swa_full is True
    yield "--no-kv-offload", s.no_kv_offload is True
    yield "--n-cpu-moe", s.cpu_moe_layers
    yield "-ts", None if s.tensor_split is None else ",".join(f"{part:g}" for part in s.tensor_split)
    yield "--split-mode", "layer" if t.placement.pipeline_parallel_size > 1 else None


def _flash_attn(s: Any) -> str | bool | None:
    if s.flash_attn is None:
        return None
    build = version_key(s.engine_version or "")
    if len(build) == 1 and build[0] < _FLASH_ATTN_VALUE:
        return bool(s.flash_attn)
    return "on" if s.flash_attn else "off"


def _tensorrt_llm(t: Technical, s: Any) -> Flags:
    yield "--backend", s.backend
    yield "--tp_size", _above_one(t.placement.tensor_parallel_size)
    yield "--pp_size", _above_one(t.placement.pipeline_parallel_size)
    yield "--ep_size", _above_one(t.placement.expert_parallel_size)
    yield "--max_seq_len", s.max_model_len
    yield "--max_batch_size", s.max_batch_size or s.max_num_seqs
    yield "--max_num_tokens", s.max_num_tokens or s.max_num_batched_tokens
    yield "--kv_cache_free_gpu_memory_fraction", s.free_gpu_memory_fraction or s.gpu_memory_utilization


def _tgi(t: Technical, s: Any) -> Flags:
    yield "--dtype", _dtype(s)
    yield "--num-shard", _above_one(t.placement.tensor_parallel_size)
    yield "--max-total-tokens", s.max_model_len
    yield "--max-batch-prefill-tokens", s.max_num_batched_tokens
    yield "--max-batch-total-tokens", s.max_batch_total_tokens
    yield "--max-concurrent-requests", s.max_num_seqs
    yield "--cuda-memory-fraction", s.gpu_memory_utilization
    yield "--kv-cache-dtype", kv_dtypes(t, s)[0]


def _transformers(_: Technical, s: Any) -> Flags:
    yield "--dtype", _dtype(s)
    yield "--attn_implementation", s.attn_implementation


def _mlx(_: Technical, s: Any) -> Flags:
    if s.speculative is not None:
        yield "--draft-model", _draft(s)
        yield "--num-draft-tokens", s.speculative.num_speculative_tokens


def _nothing(_: Technical, __: Any) -> Flags:
    yield from ()


def _transformers_head(model: str, serving: Any) -> list[str]:
    return ["transformers", "serve", *(["--force_model"] if _before(serving, _POSITIONAL) else []), model]


_COMMON = frozenset({"max_model_len", "max_num_seqs", "kv_cache_dtype", "gpu_memory_utilization"})
_DROPPED = frozenset({"swap_space"})
"""Settings that releases in question know but no longer act on."""
SERVERS = {
    "vllm": Server(
        lambda m, _: ["vllm", "serve", m],
        _vllm,
        _COMMON | _DROPPED | {
            "dtype", "max_num_batched_tokens", "kv_cache_memory_bytes", "block_size", "enforce_eager",
            "enable_expert_parallel", "enable_prefix_caching", "cudagraph_capture_sizes", "cudagraph_max_capture_size",
            "cpu_offload_gb", "use_v2_model_runner", "lora", "speculative", "multimodal",
        },
    ),
    "sglang": Server(
        lambda m, _: ["python", "-m", "sglang.launch_server", "--model-path", m],
        _sglang,
        _COMMON | {
            "dtype", "dp_size", "enable_dp_attention", "chunked_prefill_size", "page_size", "cuda_graph_max_bs",
            "disable_radix_cache", "disable_cuda_graph", "lora", "speculative",
        },
    ),
    "llama.cpp": Server(
        lambda _, __: ["llama-server", "-m", "./model.gguf"],
        _llama_cpp,
        frozenset({
            "max_model_len", "kv_cache_dtype", "n_gpu_layers", "n_parallel", "n_batch", "n_ubatch", "flash_attn",
            "kv_unified", "swa_full", "no_kv_offload", "cpu_moe_layers", "tensor_split",
        }),
    ),
    "ollama": Server(
        lambda m, _: ["ollama", "run", m],
        _nothing,
        frozenset({"max_model_len", "n_parallel", "kv_cache_dtype", "flash_attn"}),
    ),
    "tensorrt-llm": Server(
        lambda m, _: ["trtllm-serve", m],
        _tensorrt_llm,
        (_COMMON - {"kv_cache_dtype"}) | {
            "backend", "max_batch_size", "max_num_tokens", "max_num_batched_tokens", "free_gpu_memory_fraction",
        },
    ),
    "tgi": Server(
        lambda m, _: ["text-generation-launcher", "--model-id", m],
        _tgi,
        _COMMON | {"dtype", "max_num_batched_tokens", "max_batch_total_tokens"},
    ),
    "mlx": Server(lambda m, _: ["mlx_lm.server", "--model", m], _mlx, frozenset({"speculative"})),
    "transformers": Server(_transformers_head, _transformers, frozenset({"dtype", "attn_implementation"})),
}  # fmt: skip
"""Every engine of the catalogue."""
