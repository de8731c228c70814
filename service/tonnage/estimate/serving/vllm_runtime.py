"""What vLLM holds outside torch, by release and card: context, communicators, what the log calls non-torch, graphs."""

from collections.abc import Mapping

from msgspec import Struct

from tonnage.estimate.serving.rank_shape import RankShape
from tonnage.estimate.serving.vllm_settings import Settings
from tonnage.laws import cuda_graphs, device_context, runtime, serving_buffers
from tonnage.spec.card import Placement
from tonnage.spec.engines.vllm import GraphSize, NonTorch
from tonnage.spec.model import Model
from tonnage.spec.report import Amount, exactly, within
from tonnage.units import MiB

_VOCABULARY_ALIGNMENT = 16
_COMMUNICATOR = (950 * MiB, 1450 * MiB)
"""NCCL's own buffers over NVLink; free memory at start of H100 with 2 to 8 ranks. [bytes]"""
_OTHER_SWITCHED = 300 * MiB
"""Half of the band on switched cards other than Hopper, whose logs are few (tests/measured/serving_vllm.json). [bytes]"""


class Outside(Struct, frozen=True, kw_only=True):
    """Memory of one rank that torch does not allocate."""

    context: Amount
    communicator: Amount
    """Opened before the baseline: outside the budget; nothing for one GPU. [bytes]"""
    framework: Amount
    """Loaded modules and local-memory pools, and runner buffers where the release counts them. [bytes]"""
    communication: Amount
    """Channels and workspaces opened after the baseline. [bytes]"""


def outside(model: Model, settings: Settings, placement: Placement) -> Outside:
    """
    Everything of a rank beside torch.

    Args:
        model: Architecture.
        settings: vLLM's settings.
        placement: The layout.

    Returns:
        Context and communicator, which the budget may or may not count, and the two parts of non-torch.
    """
    release, ranks = settings.release, placement.tensor_parallel_size
    constants = settings.core.non_torch
    spills = settings.major == 9 and release.sampler == "triton" and model.vocab_size % _VOCABULARY_ALIGNMENT
    single = runtime.growth_outside_torch(
        modules=_single(settings, constants) + (constants.unaligned_vocabulary if spills else 0),
        runner_buffers=counted_runner_buffers(model, settings),
    )
    context = Amount(0, 0, 0) if settings.core.context_in_budget else _context(settings)
    if ranks == 1:
        staged = placement.pipeline_parallel_size > 1
        amount = constants.pipeline if staged else single
        return Outside(
            context=context,
            communicator=_banded(_COMMUNICATOR[0] // 2, 0.6) if staged else exactly(0),
            framework=_single_band(amount, settings),
            communication=exactly(0),
        )
    whole, half = _tensor_parallel(settings, ranks)
    fusion = _fusion(settings, placement)
    framework = min(single, whole)
    return Outside(
        context=context,
        communicator=exactly(0) if settings.core.communicator_in_budget else _communicator(settings, ranks),
        framework=_with_host(
            _or_legacy(exactly(framework), settings, _single(settings, release.v0.non_torch)), settings
        ),
        communication=_spread(whole - framework + fusion, half),
    )


def counted_runner_buffers(model: Model, settings: Settings) -> int:
    """Penalty counts of the V2 runner, where the release charges the budget by free memory. [bytes]"""
    if not (settings.runner_v2 and settings.release.consumed_accounting):
        return 0
    return serving_buffers.penalty_counts(max_num_seqs=settings.max_num_seqs, vocab_size=model.vocab_size)


def uncounted_runner_buffers(model: Model, settings: Settings) -> int:
    """The same where no budget counts them. [bytes]"""
    if not settings.runner_v2 or settings.release.consumed_accounting:
        return 0
    return serving_buffers.penalty_counts(max_num_seqs=settings.max_num_seqs, vocab_size=model.vocab_size)


def _context(settings: Settings) -> Amount:
    if settings.rocm:
        return within(device_context.rocm(), 0.2, 1.0)
    bare = device_context.cuda(multiprocessors=settings.multiprocessors)
    return Amount(
        int(bare * 0.95), bare + device_context.torch_libraries(), bare + device_context.torch_libraries_most()
    )


def _single(settings: Settings, constants: NonTorch) -> int:
    if settings.major == 9:
        return constants.single
    return constants.single_by_capability.get(f"{settings.major}.{settings.minor}", constants.single_other)


def _tensor_parallel(settings: Settings, ranks: int) -> tuple[int, int]:
    """Non-torch of a tensor-parallel rank, and half of its band. [bytes]"""
    constants = settings.core.non_torch
    if not settings.nvswitch:
        return constants.tensor_pcie, constants.spread_tensor
    wide = _largest_listed(constants.tensor_hopper, ranks) if settings.major >= 9 else None
    if wide is not None:
        return wide, max(constants.spread_tensor, wide // 3)
    amount = _largest_listed(constants.tensor_nvlink, ranks)
    return amount or min(constants.tensor_nvlink.values()), _tensor_half_width(settings)


def _with_host(band: Amount, settings: Settings) -> Amount:
    """With the processes' own growth on the host where that is the same memory; it is hardly known."""
    if not settings.unified_memory:
        return band
    least, usual, most = (
        runtime.growth_outside_torch(modules=amount, host=host)
        for amount, host in zip((band.low, band.expected, band.high), settings.release.host_growth, strict=True)
    )
    return Amount(least, usual, most)


def _or_legacy(band: Amount, settings: Settings, amount: int) -> Amount:
    """While V1 counts the context and V0 does not, the other engine (VLLM_USE_V1=0) counts so much less."""
    release = settings.release
    if settings.legacy or not settings.core.context_in_budget or release.v0.context_in_budget:
        return band
    return Amount(min(band.low, max(0, amount - release.v0.non_torch.spread_single)), band.expected, band.high)


def _largest_listed(by_ranks: Mapping[str, int], ranks: int) -> int | None:
    """Amount of the largest listed number of ranks that is not above this one."""
    listed = max((int(size) for size in by_ranks if int(size) <= ranks), default=None)
    return None if listed is None else by_ranks[str(listed)]


def _fusion(settings: Settings, placement: Placement) -> int:
    kind = settings.release.fusion_workspace
    if kind == "none" or settings.eager or placement.data_parallel_size > 1 or placement.pipeline_parallel_size > 1:
        return 0
    return runtime.fusion_workspace(
        tensor_parallel_size=placement.tensor_parallel_size, major=settings.major, granular=kind == "granular"
    )


def _communicator(settings: Settings, ranks: int) -> Amount:
    custom = runtime.custom_all_reduce()
    if not settings.nvswitch:
        return _banded(custom + _COMMUNICATOR[0] // 4, 0.8)
    symmetric = runtime.symmetric_memory(tensor_parallel_size=ranks, major=settings.major)
    nccl = _COMMUNICATOR[0] if ranks == 2 else _COMMUNICATOR[1]
    return _banded(custom + symmetric + nccl, 0.35)


def _single_band(amount: int, settings: Settings) -> Amount:
    band = _spread(amount, settings.core.non_torch.spread_single)
    band = _or_legacy(band, settings, _single(settings, settings.release.v0.non_torch))
    return _with_host(band, settings)


def _tensor_half_width(settings: Settings) -> int:
    """Constants come from Hopper; other cards with a switch are known less well. [bytes]"""
    half = settings.core.non_torch.spread_tensor
    return half if settings.major == 9 or not settings.nvswitch else max(half, _OTHER_SWITCHED)


def _spread(amount: int, half_width: int) -> Amount:
    return Amount(max(0, amount - half_width), amount, amount + half_width)


def _banded(amount: int, part: float) -> Amount:
    return Amount(int(amount * (1 - part)), amount, int(amount * (1 + part)))


_CUSTOM_ALL_REDUCE_PCIE = 2
"""Ranks without NVLink up to which the custom all-reduce may replace NCCL, where the GPUs see each other. [unitless]"""


class Graphs(Struct, frozen=True, kw_only=True):
    """Graph memory of one rank."""

    size: Amount
    estimate: Amount
    """What the engine sets aside for it inside its budget; nothing where it does not. [bytes]"""


NO_GRAPHS = Graphs(size=exactly(0), estimate=exactly(0))


def _constants(settings: Settings) -> GraphSize:
    core = settings.core
    if settings.rocm and core.graphs_rocm is not None:
        return core.graphs_rocm
    if core.graphs_other is None or settings.data_centre:
        return core.graphs
    return core.graphs_other


def _adapters(shape: RankShape, settings: Settings) -> int:
    """Nodes of the adapters' kernels, and of the second capture without them."""
    constants = _constants(settings)
    doubled = constants.per_node if settings.release.cudagraph_specialize_lora else 0
    return cuda_graphs.captured_adapters(
        layers=shape.layers, sizes=len(settings.captures), per_node=constants.lora_per_node + doubled
    )


def _pooled_buffers(shape: RankShape, settings: Settings) -> int:
    """Of the largest batch: as wide as the model and its MLP, and of every expert a token has."""
    constants, rows = _constants(settings), settings.captures[-1]
    found = cuda_graphs.captured_buffers(rows=rows, width=shape.hidden_size, buffers=constants.hidden_buffers)
    found += cuda_graphs.captured_buffers(rows=rows, width=shape.mlp_width, buffers=constants.mlp_buffers)
    experts = shape.experts
    if experts is None:
        return found
    return found + constants.mixture_of_experts + cuda_graphs.captured_buffers(
        rows=rows * experts.per_token, width=experts.hidden_size, buffers=constants.expert_buffers
    )  # fmt: skip


def _indexer_scores(shape: RankShape, settings: Settings) -> int:
    """Of the largest batch that a full graph decodes."""
    if shape.mla is None or not shape.mla.index_topk or settings.release.cudagraph_mode != "full_and_piecewise":
        return 0
    rows = min(settings.captures[-1], settings.max_num_seqs * (1 + settings.speculative_tokens))
    return cuda_graphs.indexer_logits(rows=rows, max_model_len=settings.max_model_len)


def graphs(shape: RankShape, settings: Settings, family: str, *, lora: bool, recurrent: bool, ranks: int) -> Graphs:
    """
    What capturing takes, and what the engine itself thinks it takes.

    Args:
        shape: Widths of the rank.
        settings: vLLM's settings.
        family: Family of the weight format.
        lora: Adapters are enabled.
        recurrent: Some layers keep a state instead of a cache.
        ranks: Tensor parallel size. [unitless]

    Returns:
        Both sizes with their bands.
    """
    if settings.eager:
        return NO_GRAPHS
    release = settings.release
    constants = _constants(settings)
    law = cuda_graphs.captured(
        layers=shape.layers,
        sizes=len(settings.captures),
        base=constants.base,
        per_size=constants.per_size,
        per_node=constants.per_node,
    )
    law += _pooled_buffers(shape, settings) + _indexer_scores(shape, settings)
    if lora:
        law += _adapters(shape, settings)
    if family == "bitsandbytes" and settings.captures[-1] > 1:
        law += constants.bitsandbytes + cuda_graphs.dequantized_gate_up(
            hidden_size=shape.hidden_size, width=shape.mlp_width, element_bytes=settings.element_bytes
        )
    known = settings.core.graphs
    real = int(law * known.v2_factor) if settings.runner_v2 else law
    spread = max(known.spread, constants.spread) * (1 if shape.experts is None else 1.4)
    tuned = constants.recurrent_tuning if recurrent else 0
    tuned += known.v2_modules if settings.runner_v2 else 0
    low = 0 if known.may_give_back and settings.data_centre else int(real / spread)
    size = Amount(low, real, max(int(real * max(spread, constants.warm_spread)), real + tuned))
    if ranks > 1 and not settings.nvswitch:
        reductions = cuda_graphs.captured_reductions(
            layers=shape.layers, sizes=len(settings.captures), per_reduction=constants.per_reduction
        )
        likely = reductions if ranks > _CUSTOM_ALL_REDUCE_PCIE else 0
        size = Amount(size.low, size.expected + likely // 2, size.high + reductions)
    counted = release.graph_estimate == "all" or (release.graph_estimate == "v1" and not settings.runner_v2)
    if not counted or settings.rocm:
        return Graphs(size=size, estimate=exactly(0))
    estimate = int(law * (known.v2_estimate_factor if settings.runner_v2 else known.estimate_factor))
    wide = 1.5 if shape.experts is None else 2.5
    high = max(int(estimate * wide), estimate + tuned)
    return Graphs(size=size, estimate=Amount(int(estimate / wide), estimate, high))
