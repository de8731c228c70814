"""vLLM's settings for one card: what the caller says, and for the rest what that release does by default."""

from typing import Any, TypeVar

from msgspec import Struct

from tonnage.estimate.caches import DTYPE_BYTES, plain_kv_format
from tonnage.estimate.identity_cache import remembered
from tonnage.laws import cuda_graphs
from tonnage.spec import card
from tonnage.spec.engines.vllm import AwqMatmul, BatchTier, Core, V0Feature
from tonnage.spec.engines.vllm import Vllm as Release
from tonnage.spec.facts import Gpu, KvFormat
from tonnage.spec.model import Model
from tonnage.spec.report import Assumption
from tonnage.spec.workload import Workload

T = TypeVar("T")

_DTYPES = {
    "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "half": "fp16", "fp16": "fp16",
    "float32": "fp32", "float": "fp32", "fp32": "fp32",
}  # fmt: skip
_V0_CHUNKED_ABOVE = 32_768
_MULTIMODAL_BATCH = 5_120
_SMALLEST_BATCH = 2_048
_SPARSE_BLOCK = 64
_ITEM_LIMIT = 999
"""Items of a kind per prompt where the caller sets no limit. [unitless]"""
_DATA_CENTRE = frozenset({(8, 0), (9, 0), (10, 0), (10, 3)})
"""Compute capabilities of A100, Hopper and data-centre Blackwell."""
_NVSWITCH_DOMAIN = 4
"""Bridges join pairs; more GPUs in one domain meet in a switch. [GPUs]"""


class Settings(Struct, frozen=True, kw_only=True):
    """Everything of the engine's configuration that memory depends on."""

    release: Release
    legacy: bool
    """The V0 engine runs it."""
    runner_v2: bool
    dtype: str
    element_bytes: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    fraction: float
    pool_bytes: int | None
    """A pool the caller fixed. [bytes]"""
    block_size: int
    block_size_given: bool
    kv_formats: tuple[KvFormat, KvFormat]
    captures: tuple[int, ...]
    speculative_tokens: int
    prefix_caching: bool
    spare_states: int
    """Recurrent states of a request beyond the one it computes with: of drafts, of the prefix cache. [states]"""
    every_state: bool
    """The prefix cache keeps a recurrent state for every block."""
    images: bool
    """Images are profiled (a multimodal model whose limits are not all zero)."""
    videos: bool
    """Videos may be profiled too."""
    images_per_prompt: int
    encoder_replicated: bool
    major: int
    """Compute capability, major number; 0 for cards without one."""
    minor: int
    multiprocessors: int
    l2_cache_bytes: int
    nvswitch: bool
    rocm: bool
    unified_memory: bool
    """Host and GPU share one memory."""
    keeps_gate_up: bool
    """The model's code keeps gate and up projection alive until the MLP is done."""
    awq_matmul: AwqMatmul | None
    """How AWQ weights are multiplied; None for weights of another kind."""
    assumptions: tuple[Assumption, ...]

    @property
    def core(self) -> Core:
        """What the engine core that runs counts."""
        return self.release.v0 if self.legacy or self.release.v1 is None else self.release.v1

    @property
    def sampler_optional(self) -> bool:
        """Which sampler runs depends on what is installed."""
        return self.release.flashinfer_optional and not self.legacy and not self.rocm

    @property
    def rows(self) -> int:
        """Requests of the dummy batch. [requests]"""
        return min(self.max_num_seqs, self.max_num_batched_tokens)

    @property
    def data_centre(self) -> bool:
        """A100, Hopper or data-centre Blackwell."""
        return (self.major, self.minor) in _DATA_CENTRE

    @property
    def eager(self) -> bool:
        """No graphs are captured."""
        return not self.captures

    @property
    def in_flight_tokens(self) -> int:
        """Tokens scheduled and not yet computed that windows must leave room for. [tokens]"""
        return self.max_num_batched_tokens * (2 if self.release.in_flight_batches else 1)


def settings(workload: Workload) -> Settings:
    """
    The configuration vLLM ends up with.

    Args:
        workload: Resolved card for vLLM.

    Returns:
        Settings with every default filled in, and the assumptions that filled them.
    """
    serving, release, model, gpu = workload.serving, workload.profile, workload.model, workload.gpu
    assert isinstance(serving, card.Vllm)  # noqa: S101  (dispatch is by this type)
    assert isinstance(release, Release)  # noqa: S101  (dispatch is by this type)
    return _Reader(serving, release, model, gpu, workload).read()


class _Reader:
    """Reads one card; notes every default it takes."""

    def __init__(self, serving: card.Vllm, release: Release, model: Model, gpu: Gpu | None, workload: Workload) -> None:
        self.serving = serving
        self.release = release
        self.model = model
        self.gpu = gpu
        self.workload = workload
        self.notes: list[Assumption] = []

    def read(self) -> Settings:
        serving, release, gpu = self.serving, self.release, self.gpu
        major, minor = compute_capability(gpu)
        legacy = runs_v0(release, major, minor, self.workload)
        dtype = plain_dtype(self.workload)
        length = self.max_model_len()
        seqs, tokens = self.batch(length, legacy)
        speculative = serving.speculative.num_speculative_tokens if serving.speculative is not None else 0
        fraction = serving.gpu_memory_utilization
        if fraction is None:
            fraction = self.note("gpu_memory_utilization", release.gpu_memory_utilization)
        captures = self.captures(seqs, tokens, speculative, legacy, major)
        cached = caches_prefixes(release, self.model, serving, legacy)
        kv_formats = self.workload.kv_formats or (plain_kv_format(dtype), plain_kv_format(dtype))
        pool = serving.kv_cache_memory_bytes
        return Settings(
            release=release,
            legacy=legacy,
            runner_v2=runs_v2(release, self.model, self.workload, legacy),
            dtype=dtype,
            element_bytes=DTYPE_BYTES[dtype],
            max_model_len=length,
            max_num_seqs=seqs,
            max_num_batched_tokens=tokens,
            fraction=fraction,
            pool_bytes=pool if isinstance(pool, int) else None,
            block_size=serving.block_size or self.block(major, legacy),
            block_size_given=serving.block_size is not None,
            kv_formats=kv_formats,
            captures=captures,
            speculative_tokens=speculative,
            prefix_caching=cached,
            spare_states=speculative + (kept_states(release, self.model) if cached else 0),
            every_state=cached and self.model.model_type in release.every_state_model_types,
            images=profiles_images(self.model, serving),
            videos=profiles_videos(serving),
            images_per_prompt=images_per_prompt(serving),
            encoder_replicated=serving.multimodal is not None and serving.multimodal.encoder_tp_mode == "data",
            major=major,
            minor=minor,
            multiprocessors=(gpu.multiprocessors if gpu is not None else None) or 108,
            l2_cache_bytes=(gpu.l2_cache_bytes if gpu is not None else None) or 0,
            nvswitch=gpu is not None and (gpu.nvlink_domain_max or 0) >= _NVSWITCH_DOMAIN,
            rocm=gpu is not None and gpu.vendor == "amd",
            unified_memory=gpu is not None and gpu.unified_memory,
            keeps_gate_up=self.model.model_type not in release.rebinding_model_types,
            awq_matmul=awq_matmul(release, self.workload, major),
            assumptions=tuple(self.notes),
        )

    def note(self, field: str, value: T, why: str | None = None) -> T:
        self.notes.append(Assumption(f"serving.{field}", value, why or f"vLLM {self.release.since} default"))
        return value

    def max_model_len(self) -> int:
        given = self.serving.max_model_len
        return given or self.note("max_model_len", traits(self.model).native_length, "longest the model states")

    def batch(self, length: int, legacy: bool) -> tuple[int, int]:
        seqs, tokens = self.serving.max_num_seqs, self.serving.max_num_batched_tokens
        tier = batch_tier(self.release, self.gpu)
        if legacy:
            seqs = seqs or self.note("max_num_seqs", 256)
            return seqs, tokens or self.note("max_num_batched_tokens", self.unchunked_tokens(length))
        default_seqs = seqs or tier.max_num_seqs
        if tokens is None:
            unchunked = length if traits(self.model).encodes_only else 0
            tokens = min(max(tier.max_num_batched_tokens, unchunked), default_seqs * length)
            whole = tokens > tier.max_num_batched_tokens
            reason = (
                "attention in both directions takes a request whole" if whole else _tier_reason(self.release, self.gpu)
            )
            self.note("max_num_batched_tokens", tokens, reason)
        if seqs is None:
            seqs = self.note("max_num_seqs", min(default_seqs, tokens), _tier_reason(self.release, self.gpu))
        return seqs, tokens

    def block(self, major: int, legacy: bool) -> int:
        """Block size where the caller gives none: kernels of MLA want larger ones on some cards."""
        kind = traits(self.model)
        if kind.sparse:
            return _SPARSE_BLOCK
        if not kind.mla or legacy:
            return self.release.block_size
        return self.release.mla_block_sizes.get(str(major), self.release.block_size)

    def unchunked_tokens(self, length: int) -> int:
        """Batch of the V0 engine: the longest request, unless chunked prefill switches itself on."""
        chunked = self.release.v0_chunked_prefill_tokens
        kind = traits(self.model)
        plain = not (kind.windows or self.serving.lora or self.serving.speculative or self.model.vision)
        if chunked and plain and length > _V0_CHUNKED_ABOVE:
            return chunked
        return max(length, _MULTIMODAL_BATCH if self.model.vision else _SMALLEST_BATCH)

    def captures(self, seqs: int, tokens: int, speculative: int, legacy: bool, major: int) -> tuple[int, ...]:
        serving, release = self.serving, self.release
        if serving.enforce_eager or release.cudagraph_mode == "none":
            return ()
        if serving.cudagraph_capture_sizes is not None:
            return tuple(sorted(serving.cudagraph_capture_sizes))
        largest = serving.cudagraph_max_capture_size
        if legacy:
            return cuda_graphs.decode_capture_sizes(max_num_seqs=largest or seqs)
        own = release.capture_limits_by_model_type.get(self.model.model_type) if largest is None else None
        if own is not None:
            return _capture_sizes(min(own, tokens), 16)
        if largest is None:
            limit = release.capture_limit
            if major == 10 and release.capture_limit_blackwell is not None:
                limit = release.capture_limit_blackwell
            largest = cuda_graphs.largest_capture(
                max_num_seqs=seqs if release.captures_by_requests else limit,
                tokens_per_request=1 + speculative,
                limit=limit,
                max_num_batched_tokens=tokens,
            )
        return _capture_sizes(largest, release.capture_step_above_256)


@remembered(256)
def _capture_sizes(largest: int, step_above_256: int) -> tuple[int, ...]:
    return cuda_graphs.capture_sizes(largest=largest, step_above_256=step_above_256)


@remembered(512)
def compute_capability(gpu: Gpu | None) -> tuple[int, int]:
    """Major and minor number; (0, 0) where the card has none or is not known."""
    if gpu is None or gpu.compute_capability is None:
        return 0, 0
    major, _, minor = gpu.compute_capability.partition(".")
    return (int(major), int(minor or 0)) if major.isdigit() else (0, 0)


MARLIN_SINCE = 8
"""Major compute capability from which group formats are repacked for Marlin."""


def awq_matmul(release: Release, workload: Workload, major: int) -> AwqMatmul | None:
    """How AWQ weights are multiplied: Marlin needs a GPU of its time; None for weights of another kind."""
    if workload.weight_format.family != "awq":
        return None
    return "dequantize" if release.awq_matmul == "marlin" and major < MARLIN_SINCE else release.awq_matmul


def has_v0(release: Release) -> bool:
    """Whether a release still brings the V0 engine."""
    return release.engine_core == "v0" or release.v0_below_compute_capability != "0.0"


def runs_v0(release: Release, major: int, minor: int, workload: Workload) -> bool:
    """Whether the V0 engine runs the card: always before V1, later where V1 has no support."""
    if release.engine_core == "v0":
        return True
    least = release.v0_below_compute_capability
    if least is not None and major and (major, minor) < _version(least):
        return True
    if (
        workload.weight_format.family in release.v0_weight_formats
        or workload.model.model_type in release.v0_model_types
    ):
        return True
    return any(_uses(feature, release, workload, major) for feature in release.v0_features)


@remembered(64)
def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split("."))


def _uses(feature: V0Feature, release: Release, workload: Workload, major: int) -> bool:
    serving, gpu = workload.serving, workload.gpu
    assert isinstance(serving, card.Vllm)  # noqa: S101  (dispatch is by this type)
    method = serving.speculative.method.lower() if serving.speculative is not None else ""
    quantized = workload.kv_formats is not None and any(
        f.block_bytes < 2 * f.block_elements for f in workload.kv_formats
    )
    uses: dict[V0Feature, bool] = {
        "lora": serving.lora is not None,
        "pipeline": workload.placement.pipeline_parallel_size > 1,
        "quantized_kv": quantized and bool(major) and major not in release.v1_quantized_kv_majors,
        "fp32": (serving.dtype or "").lower() in ("float32", "fp32", "float"),
        "recurrent": traits(workload.model).recurrent,
        "speculative": bool(method),
        "draft_model": method in ("draft", "draft_model"),
        "offload": bool(serving.cpu_offload_gb),
        "amd": gpu is not None and gpu.vendor == "amd",
    }
    return uses[feature]


def runs_v2(release: Release, model: Model, workload: Workload, legacy: bool) -> bool:
    """Whether the V2 model runner runs it: as asked, else where it is the default for the model."""
    rule, speculative = release.model_runner_v2, workload.serving.speculative if workload.serving is not None else None
    if legacy or rule == "none":
        return False
    asked = workload.serving.use_v2_model_runner if isinstance(workload.serving, card.Vllm) else None
    return _is_v2_default(release, model, workload, speculative) if asked is None else asked


def _is_v2_default(release: Release, model: Model, workload: Workload, speculative: card.Speculative | None) -> bool:
    rule = release.model_runner_v2
    if speculative is not None and not _drafts_on_v2(release, speculative.method):
        return False
    if rule == "all":
        return True
    kind = traits(model)
    listed = model.model_type in release.v2_model_types
    if rule == "listed_plain":
        return listed and not kind.experts and workload.weight_format.kind == "plain"
    if rule == "listed":
        return listed
    return listed or not (kind.experts or kind.recurrent)


def _drafts_on_v2(release: Release, method: str) -> bool:
    """Methods of one model each are spelled with its name: deepseek_mtp, qwen3_next_mtp."""
    return "mtp" in method.lower() or method.lower() in release.v2_speculators


def caches_prefixes(release: Release, model: Model, serving: card.Vllm, legacy: bool) -> bool:
    """Whether requests share the cache of a common prefix: on by default since V1, later beside recurrent layers."""
    asked = serving.enable_prefix_caching
    if traits(model).recurrent and not legacy:
        if release.recurrent_prefix_cache == "none":
            return False
        return asked if asked is not None else release.recurrent_prefix_cache == "default"
    return asked if asked is not None else not legacy


@remembered()
def kept_states(release: Release, model: Model) -> int:
    """States that the prefix cache keeps beside the one in use. [states]"""
    kinds = {g.layer.recurrent.kind for g in model.layers if g.layer.recurrent is not None}
    if not kinds:
        return 0
    if model.model_type in release.every_state_model_types:
        return 0
    return 2 if kinds & set(release.checkpointed_states) else 1


@remembered(1024)
def batch_tier(release: Release, gpu: Gpu | None) -> BatchTier:
    """Default batch limits of the card's class; an unknown card is of the smallest."""
    device = 0 if gpu is None else gpu.memory_device_bytes or gpu.memory_usable_bytes
    name = "" if gpu is None else f"{gpu.id} {gpu.name}".lower()
    for tier in release.tiers:
        named = not tier.names or any(part in name for part in tier.names)
        if named and device >= tier.minimum_device_bytes and not any(part in name for part in tier.except_names):
            return tier
    return release.tiers[-1]


@remembered(1024)
def _tier_reason(release: Release, gpu: Gpu | None) -> str:
    return f"vLLM {release.since} default for {'an unknown card' if gpu is None else gpu.name}"


class Traits(Struct, frozen=True, kw_only=True):
    """What settings ask of an architecture."""

    experts: bool
    recurrent: bool
    mla: bool
    sparse: bool
    """Attention picks its keys with an indexer."""
    indexed: bool
    """It has buffers as long as the longest request."""
    windows: bool
    encodes_only: bool
    """No decoder: nothing is sampled, and attention in both directions takes a request whole."""
    native_length: int


@remembered()
def traits(model: Model) -> Traits:
    """What kinds of layers a model has, and its longest length."""
    layers = [group.layer for group in model.layers]
    attentions = [layer.attention for layer in layers if layer.attention is not None]
    kinds = {attention.kind for attention in attentions}
    return Traits(
        experts=any(layer.moe is not None for layer in layers),
        recurrent=any(layer.recurrent is not None for layer in layers),
        mla="mla" in kinds,
        sparse=any(attention.index_topk for attention in attentions),
        indexed=any(attention.index_topk or attention.index_head_dim for attention in attentions),
        windows=bool(kinds & {"sliding", "chunked"}),
        encodes_only=bool(layers) and all(layer.role == "encoder" for layer in layers),
        native_length=_native_length(model),
    )


def _native_length(model: Model) -> int:
    """max_position_embeddings, stretched as vLLM's _get_and_verify_max_len does. [tokens]"""
    length = model.max_position_embeddings or _SMALLEST_BATCH
    scaling: dict[str, Any] = model.rope_scaling or {}
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor")
    if kind == "yarn" and isinstance(factor, int | float):
        return int((scaling.get("original_max_position_embeddings") or length) * factor)
    if kind in ("linear", "dynamic") and isinstance(factor, int | float) and "gemma3" not in model.model_type:
        return int(length * factor)
    return length


def plain_dtype(workload: Workload) -> str:
    """Plain dtype the model runs in; an fp32 checkpoint runs in 16 bit unless the caller says otherwise."""
    asked = getattr(workload.serving, "dtype", None)
    if asked is not None and asked.lower() in _DTYPES:
        return _DTYPES[asked.lower()]
    stored = workload.weight_format.id if workload.weight_format.kind == "plain" else workload.model.dtype
    return stored if stored in ("bf16", "fp16") else "fp16" if stored == "fp32" else "bf16"


def profiles_images(model: Model, serving: card.Vllm) -> bool:
    """Whether the vision tower is loaded and profiled."""
    if model.vision is None:
        return False
    limits = serving.multimodal
    if limits is None:
        return True
    given = (limits.images_per_prompt, limits.videos_per_prompt)
    return not limits.language_model_only and any(limit != 0 for limit in given)


def profiles_videos(serving: card.Vllm) -> bool:
    """Whether the tower may be given videos, where it is given anything."""
    return serving.multimodal is None or serving.multimodal.videos_per_prompt != 0


def images_per_prompt(serving: card.Vllm) -> int:
    """Most images of one prompt. [unitless]"""
    return (serving.multimodal.images_per_prompt if serving.multimodal is not None else None) or _ITEM_LIMIT
