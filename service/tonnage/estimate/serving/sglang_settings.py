"""SGLang's settings for one card: its default fraction and limits by board, ranks and release."""

from msgspec import Struct

from tonnage.errors import ContradictoryWorkload
from tonnage.estimate.caches import DTYPE_BYTES, plain_kv_format
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.vllm_settings import compute_capability, plain_dtype, traits
from tonnage.laws import static_fraction
from tonnage.spec import card
from tonnage.spec.engines.sglang import MemoryTier, Reserve
from tonnage.spec.engines.sglang import Sglang as Release
from tonnage.spec.facts import Gpu, KvFormat
from tonnage.spec.model import Model
from tonnage.spec.report import Assumption
from tonnage.spec.workload import Workload

_UNKNOWN_BOARD = 0.88
MANY_RANKS = 4
"""From so many ranks on server_args.py takes the larger tier, as boards that share NVLink have. [ranks]"""


class Settings(Struct, frozen=True, kw_only=True):
    """Everything of the engine's configuration that memory depends on."""

    release: Release
    dtype: str
    element_bytes: int
    context: int
    fraction: float
    chunked_prefill_size: int
    decode_sizes: tuple[int, ...]
    prefill_sizes: tuple[int, ...]
    page_size: int
    max_running_requests: int | None
    """Stated, of one group of attention."""
    attention_groups: int
    """Data-parallel groups that attention, cache and requests are shared out over."""
    attention_ranks: int
    """Ranks of one of them, which cut its heads."""
    keeps_prefixes: bool
    """The radix cache of past prompts."""
    kv_formats: tuple[KvFormat, KvFormat]
    draft_tokens: int
    major: int
    multiprocessors: int
    nvswitch: bool
    rocm: bool
    unified: bool
    """The GPU's memory is the host's."""
    images: bool
    assumptions: tuple[Assumption, ...]


def settings(workload: Workload) -> Settings:
    """
    The configuration SGLang ends up with.

    Args:
        workload: Resolved card for SGLang.

    Returns:
        Settings with every default filled in.
    """
    serving, release, model, gpu = workload.serving, workload.profile, workload.model, workload.gpu
    assert isinstance(serving, card.Sglang)  # noqa: S101  (dispatch is by this type)
    assert isinstance(release, Release)  # noqa: S101  (dispatch is by this type)
    ranks = workload.placement.tensor_parallel_size
    tier = memory_tier(release, gpu)
    notes: list[Assumption] = []
    chunk = serving.chunked_prefill_size or serving.max_num_batched_tokens or tier.chunked_prefill_size
    largest = serving.cuda_graph_max_bs or (
        tier.cuda_graph_max_bs if ranks < MANY_RANKS else tier.cuda_graph_max_bs_tp4
    )
    generates = any(group.layer.role == "decoder" for group in model.layers) or not model.known
    eager = bool(serving.disable_cuda_graph or serving.enforce_eager or not generates)
    groups = attention_groups(serving, release, ranks)
    running = serving.max_num_seqs or (release.drafting_requests if _drafts(workload) else None)
    running = running and max(1, running // groups)
    decode = () if eager else _decode_sizes(min(largest, running or largest))
    if groups > 1:
        decode = tuple(size for size in decode if not size * groups % ranks)
    if serving.cuda_graph_max_bs is None and release.running_requests_cap_graphs:
        largest = min(largest, (serving.max_num_seqs and running) or largest)
    prefill = _prefill_sizes(workload, release, chunk) if decode else ()
    images = model.vision is not None and not (serving.multimodal and serving.multimodal.language_model_only)
    fraction, context = serving.gpu_memory_utilization, serving.max_model_len or traits(model).native_length
    if fraction is not None and model.vision is not None and release.vision_cuts_stated:
        fraction *= release.vision_factor
    if fraction is None:
        fraction = default_fraction(workload, release, chunk, largest, prefill)
        notes.append(Assumption("serving.gpu_memory_utilization", fraction, _why(release, gpu)))
    fraction *= _attention_factor(workload, release, context)
    for name, given, value in (
        ("max_model_len", serving.max_model_len, traits(model).native_length),
        ("chunked_prefill_size", serving.chunked_prefill_size or serving.max_num_batched_tokens, chunk),
        ("cuda_graph_max_bs", serving.cuda_graph_max_bs, largest),
    ):
        if given is None:
            notes.append(Assumption(f"serving.{name}", value, _why(release, gpu)))
    dtype = plain_dtype(workload)
    speculative = serving.speculative
    return Settings(
        release=release,
        dtype=dtype,
        element_bytes=DTYPE_BYTES[dtype],
        context=context,
        fraction=fraction,
        chunked_prefill_size=chunk,
        decode_sizes=decode,
        prefill_sizes=prefill,
        page_size=serving.page_size or serving.block_size or 1,
        max_running_requests=running,
        attention_groups=groups,
        attention_ranks=ranks // groups,
        keeps_prefixes=not serving.disable_radix_cache,
        kv_formats=workload.kv_formats or (plain_kv_format(dtype), plain_kv_format(dtype)),
        draft_tokens=speculative.num_speculative_tokens if speculative is not None else 0,
        major=compute_capability(gpu)[0],
        multiprocessors=(gpu.multiprocessors if gpu is not None else None) or 108,
        nvswitch=gpu is not None and (gpu.nvlink_domain_max or 0) >= MANY_RANKS,
        rocm=gpu is not None and gpu.vendor == "amd",
        unified=gpu is not None and gpu.unified_memory,
        images=images,
        assumptions=tuple(notes),
    )


def attention_groups(serving: card.Sglang, release: Release, ranks: int) -> int:
    """
    Data-parallel groups of attention within the tensor-parallel ranks.

    Args:
        serving: The card's serving part.
        release: SGLang's release.
        ranks: Tensor-parallel ranks. [unitless]

    Returns:
        Groups; 1 where every rank cuts the same heads. [unitless]

    Raises:
        ContradictoryWorkload: `dp_size` means something else here, or does not divide the ranks.
    """
    stated = serving.dp_size or 1
    if not serving.enable_dp_attention:
        if stated > 1:
            raise ContradictoryWorkload(
                "dp_size counts the groups of enable_dp_attention, which is not on: replicas are "
                "placement.data_parallel_size",
                pointer="/serving/dp_size",
            )
        return 1
    if release.attention_groups_are_ranks:
        return ranks
    if ranks % stated:
        raise ContradictoryWorkload(
            f"tensor_parallel_size {ranks} is not divisible by dp_size {stated}", pointer="/serving/dp_size"
        )
    return stated


def _drafts(workload: Workload) -> bool:
    """Whether a draft model or head is loaded: prompt lookup needs none."""
    speculative = workload.serving.speculative if workload.serving is not None else None
    return speculative is not None and speculative.method.lower() != "ngram"


def _attention_factor(workload: Workload, release: Release, context: int) -> float:
    """What AMD's own attention kernels, the default of its accelerators, take off the fraction."""
    gpu = workload.gpu
    if gpu is None or context <= SHORT_CONTEXT or gpu.compute_capability not in release.aiter_targets:
        return 1.0
    latent = traits(workload.model).mla
    heads = {g.layer.attention.num_attention_heads for g in workload.model.layers if g.layer.attention is not None}
    local = max(heads, default=0) // workload.placement.tensor_parallel_size
    return release.aiter_factor if not latent or local in _LATENT_HEADS else 1.0


SHORT_CONTEXT = 8_192
"""Up to it AMD's attention kernels need nothing beside the usual. [tokens]"""
_LATENT_HEADS = (16, 128)
"""Heads of a rank that AMD's latent attention kernel is written for. [heads]"""


def _why(release: Release, gpu: Gpu | None) -> str:
    return f"SGLang {release.since} default for {'an unknown card' if gpu is None else gpu.name}"


def memory_tier(release: Release, gpu: Gpu | None) -> MemoryTier:
    """Default limits of the board's class; an unknown board is of the largest."""
    board = None if gpu is None else gpu.memory_device_bytes or gpu.memory_usable_bytes
    for tier in release.tiers:
        if tier.below_bytes is None or (board is not None and board < tier.below_bytes):
            return tier
    return release.tiers[-1]


def default_fraction(workload: Workload, release: Release, chunk: int, largest: int, prefill: tuple[int, ...]) -> float:
    """
    mem_fraction_static where the caller gives none.

    Args:
        workload: Resolved card.
        release: SGLang's release.
        chunk: Chunk of a prefill. [tokens]
        largest: Largest captured batch. [requests]
        prefill: Captured prefill sizes. [tokens]

    Returns:
        Fraction. [fraction]
    """
    gpu, placement, model = workload.gpu, workload.placement, workload.model
    ranks = placement.tensor_parallel_size * placement.pipeline_parallel_size
    board = None if gpu is None else gpu.memory_device_bytes or gpu.memory_usable_bytes
    if board is None and release.fraction_rule in ("board", "reserve"):
        return _UNKNOWN_BOARD
    if release.fraction_rule == "reserve" and board is not None:
        reserve = reserved_bytes(workload, release.reserve, board, chunk=chunk, largest=largest, prefill=prefill)
        return static_fraction.from_reserve(board=board, reserve=reserve) * _vision_factor(model, release)
    if release.fraction_rule == "board" and board is not None:
        tier = memory_tier(release, gpu)
        reserve = tier.reserve + tier.reserve_per_rank * ranks + _board_draft(workload, release)
        reserve += release.board_attention_groups if _groups(workload) > 1 else 0
        fraction = static_fraction.from_reserve(board=board, reserve=reserve)
    else:
        fraction = _by_ranks(release, ranks)
        if release.fraction_rule == "ranks_and_board" and board is not None:
            fraction = static_fraction.by_ranks_and_board(fraction=fraction, board=board)
    return fraction * _vision_factor(model, release)


def _board_draft(workload: Workload, release: Release) -> int:
    """What rule "board" keeps for a draft. [bytes]"""
    speculative = workload.serving.speculative if workload.serving is not None else None
    if speculative is None:
        return 0
    return release.board_standalone_draft if speculative.method.lower() == "standalone" else release.board_draft


def _groups_reserve(workload: Workload, reserve: Reserve, largest: int) -> int:
    """What batches of data-parallel groups take beside. [bytes]"""
    groups = _groups(workload)
    if groups == 1:
        return 0
    each = reserve.per_graph_request_of_group
    each += reserve.per_large_graph_request_of_group if largest > reserve.large_graph else 0
    return largest * groups * each


def _groups(workload: Workload) -> int:
    serving, release = workload.serving, workload.profile
    assert isinstance(serving, card.Sglang)  # noqa: S101  (dispatch is by this type)
    assert isinstance(release, Release)  # noqa: S101  (dispatch is by this type)
    return attention_groups(serving, release, workload.placement.tensor_parallel_size)


def _vision_factor(model: Model, release: Release) -> float:
    """The engine reads `num_hidden_layers`; towers that call it `depth` count as those of a ViT-L."""
    if (tower := model.vision) is None:
        return 1.0
    if not release.sizes_vision_tower:
        return release.vision_factor
    return static_fraction.vision_tower(
        factor=release.vision_factor,
        layers=_USUAL_TOWER if "depth" in tower.config else tower.num_hidden_layers,
        hidden_size=int(tower.config.get("hidden_size") or tower.hidden_size),
    )


_USUAL_TOWER = 24
"""Layers that server_args.py takes where a vision config has no `num_hidden_layers`. [layers]"""


def _by_ranks(release: Release, ranks: int) -> float:
    steps = {int(size): fraction for size, fraction in release.fractions.items()}
    return steps[max(size for size in steps if size <= ranks)]


def reserved_bytes(
    workload: Workload, reserve: Reserve | None, board: int, *, chunk: int, largest: int, prefill: tuple[int, ...]
) -> int:
    """What newer releases keep outside the fraction. [bytes]"""
    if reserve is None:
        return 0
    placement = workload.placement
    ranks = placement.tensor_parallel_size * placement.pipeline_parallel_size
    amount = reserve.constant + max(chunk, reserve.smallest_prefill) * reserve.per_prefill_token
    amount += largest * reserve.per_graph_request + ranks * reserve.per_rank
    amount += _groups_reserve(workload, reserve, largest)
    if prefill:
        latent = traits(workload.model).mla
        amount += reserve.latent_prefill_graphs if latent else len(prefill) * reserve.per_prefill_graph
    if board > reserve.large_board:
        amount = max(amount, reserve.least_on_large_boards)
    speculative = workload.serving.speculative if workload.serving is not None else None
    if speculative is None or speculative.method.lower() == "ngram":
        return amount
    return amount + (reserve.standalone_draft if speculative.method.lower() == "standalone" else reserve.draft_model)


def _prefill_sizes(workload: Workload, release: Release, chunk: int) -> tuple[int, ...]:
    serving, gpu = workload.serving, workload.gpu
    if serving is None or not release.captures_prefill or (gpu is not None and gpu.vendor != "nvidia"):
        return ()
    latent, kind = traits(workload.model).mla, workload.model.model_type
    uncaptured = (
        workload.placement.pipeline_parallel_size > 1
        or kind in release.uncaptured_models
        or (workload.model.vision is not None and kind not in release.prefill_vision_models)
        or (serving.lora is not None and not release.prefill_with_adapters)
        or (serving.speculative is not None and not release.prefill_with_drafts)
        or (latent and not release.prefill_with_latents)
    )
    if uncaptured:
        return ()
    return _prefill_capture_sizes(min(chunk, release.latent_prefill_tokens) if latent else chunk)


@remembered(256)
def _decode_sizes(largest: int) -> tuple[int, ...]:
    return static_fraction.decode_capture_sizes(largest=largest)


@remembered(256)
def _prefill_capture_sizes(largest: int) -> tuple[int, ...]:
    return static_fraction.prefill_capture_sizes(largest=largest)
