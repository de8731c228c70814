"""
vLLM's profile run on one rank: which branch leads, and what its items are.

The printed activation is what torch allocates at the worst moment: workspaces that stay, and the largest of
the forward pass, the sampler's dummy run and the vision encoder.
"""

from msgspec import Struct

from tonnage.estimate.serving import moe_kernels
from tonnage.estimate.serving.rank_shape import RankShape
from tonnage.estimate.serving.vllm_images import Images, profiled_images, profiled_requests
from tonnage.estimate.serving.vllm_settings import Settings
from tonnage.laws import device_context, sampler, serving_activations
from tonnage.spec.model import Model
from tonnage.units import ceil_div

_WORKSPACE_LAWS = {name: f"laws.moe_workspace.{name}" for name in ("triton", "flashinfer_cutlass", "flashinfer_trtllm")}
"""Kernels with a law of their own; the others follow the topic's."""


class Peak(Struct, frozen=True, kw_only=True):
    """Parts of one rank's activation peak. [bytes]"""

    activations: int
    logits: int
    sampler: int
    vision: int
    workspace: int
    kept: int
    """Of the workspace, what experts and indexers keep between passes. [bytes]"""
    workspace_law: str
    leads: str
    """forward, sampler or encoder."""
    below: float
    """How much smaller the truth may be. [fraction of the peak]"""
    above: float
    detail: str
    decode_logits: int
    """Logits of a decode step of every request at once; 0 where they do not arrive. [bytes]"""
    decode_sampler: int
    sampler_later: int
    """What the sampler takes at run time beyond what was profiled. [bytes]"""

    @property
    def total(self) -> int:
        """The peak as the log prints it. [bytes]"""
        return self.activations + self.logits + self.sampler + self.vision + self.workspace


class Rank(Struct, frozen=True, kw_only=True):
    """Where in the placement the profile runs."""

    first: bool
    last: bool
    samples: bool
    """Logits arrive here: the last stage, and with the V0 engine its first rank only."""
    tensor_parallel_size: int
    data_parallel_size: int
    expert_parallel_size: int


class Branch(Struct, frozen=True, kw_only=True):
    """One candidate for the peak. [bytes]"""

    name: str
    activations: int
    logits: int = 0
    sampler: int = 0
    vision: int = 0

    @property
    def total(self) -> int:
        """Size of the branch. [bytes]"""
        return self.activations + self.logits + self.sampler + self.vision


def peak(model: Model, shape: RankShape, settings: Settings, rank: Rank, kernel: moe_kernels.Kernel) -> Peak:
    """
    Activation peak of one rank.

    Args:
        model: Architecture.
        shape: Widths of the rank.
        settings: vLLM's settings.
        rank: Its place.
        kernel: Expert kernel and how its weights are stored.

    Returns:
        Parts of the peak, which branch leads, and the band.
    """
    workspace, transient = moe_kernels.buffers(shape, settings, rank.data_parallel_size, kernel)
    cublas = device_context.cublas_workspace(compute_capability_major=settings.major)
    indexer = _indexer_gather(shape, settings)
    persistent = max(workspace, indexer)
    images = profiled_images(model, settings, first=rank.first, tensor_parallel_size=rank.tensor_parallel_size)
    branches = [_forward(shape, settings, rank, experts=transient, kept=images.kept, family=kernel.family)]
    later, drawn = 0, Branch(name="sampler", activations=0)
    if rank.samples:
        drawn = _sampler(model, shape, settings, images.kept)
        branches.append(drawn)
        rows = settings.rows
        later = max(
            0, _sampler_buffers(model, settings, rows, profiled=False) - _sampler_buffers(model, settings, rows)
        )
    if images.peak:
        branches.append(Branch(name="encoder", activations=0, vision=images.peak))
    warm = max(branches, key=lambda b: b.total)
    branches += _cold_start(model, settings, rank, warm)
    leading = max(branches, key=lambda b: b.total)
    thin = kernel.quantized or rank.expert_parallel_size > 1
    below, above = _band(leading.name, shape, settings, thin=thin, images=images)
    if leading is not warm:
        below, above = 1 - warm.total / leading.total + below, _COLD_SPREAD
    if settings.sampler_optional and leading is drawn:
        others = max(b.total for b in branches if b is not drawn)
        below = max(below, _without_sort(model, settings, drawn, others, cublas + persistent))
    return Peak(
        activations=leading.activations,
        logits=leading.logits,
        sampler=leading.sampler,
        vision=leading.vision,
        workspace=cublas + persistent,
        kept=persistent,
        workspace_law=_WORKSPACE_LAWS.get(kernel.name, "laws.moe_workspace.triton")
        if workspace >= indexer and workspace
        else "laws.serving_activations.indexer_gather"
        if indexer
        else "laws.device_context.cublas_workspace",
        leads=leading.name,
        below=below,
        above=above,
        detail=_detail(leading, settings),
        decode_logits=drawn.logits,
        decode_sampler=drawn.sampler,
        sampler_later=later,
    )


_FLASHINFER_SLACK = 0.05
_COLD_SPREAD = 0.2


def _cold_start(model: Model, settings: Settings, rank: Rank, warm: Branch) -> list[Branch]:
    """Compiling the layers when nothing is cached yet, as in a new container; models that see images look tokens up before."""
    lookup = rank.first and model.vision is None and settings.release.benchmarks_lookup
    if not (lookup and compiles(settings)):
        return []
    size = serving_activations.embedding_benchmark(
        vocab_rows=ceil_div(model.vocab_size, rank.tensor_parallel_size),
        hidden_size=model.hidden_size,
        tokens=settings.max_num_batched_tokens,
        element_bytes=settings.element_bytes,
        l2_cache_bytes=settings.l2_cache_bytes,
    )
    return [Branch(name="compile", activations=size)] if size > warm.total else []


def _without_sort(model: Model, settings: Settings, drawn: Branch, others: int, kept: int) -> float:
    """How much smaller the peak is if FlashInfer draws the samples. [fraction of the peak]"""
    kernel = sampler.flashinfer_top_k_top_p(rows=profiled_requests(model, settings), vocab_size=model.vocab_size)
    smaller = max(others, drawn.total - drawn.sampler + kernel)
    return 1 - (smaller + kept) / (drawn.total + kept) + _FLASHINFER_SLACK


def _detail(leading: Branch, settings: Settings) -> str:
    if leading.name == "sampler":
        sort = ", which sorts; less where FlashInfer is installed or asked for" if settings.sampler_optional else ""
        return f"the sampler's dummy run of {settings.rows} requests leads{sort}"
    if leading.name == "compile":
        return "a start that compiles inside the profile run; less where it finds its compile cache"
    if leading.name == "encoder":
        return "the vision encoder's dummy batch leads"
    return f"the forward pass of {settings.max_num_batched_tokens} tokens leads"


# ---- forward ----


def _forward(shape: RankShape, settings: Settings, rank: Rank, *, experts: int, kept: int, family: str) -> Branch:
    tokens, width = settings.max_num_batched_tokens, settings.element_bytes
    stream = serving_activations.stream(tokens=tokens, hidden_size=shape.hidden_size, element_bytes=width)
    dense = _dense(shape, settings, rank.tensor_parallel_size) if shape.mlp_width else 0
    if family == "bitsandbytes" and dense:
        dense += serving_activations.dequantized_matrix(
            rows=shape.mlp_width, columns=shape.hidden_size, element_bytes=width
        )
    if settings.awq_matmul == "dequantize" and dense:
        dense += serving_activations.dequantized_matrix(
            rows=_joined(shape, shape.mlp_width), columns=shape.hidden_size, element_bytes=width
        )
    if family == "int8":
        dense += serving_activations.quantized_input(tokens=tokens, width=shape.mlp_width)
    attention = 3 * stream + tokens * shape.attention_width * width
    mixture = 4 * stream + experts + _flush(settings) if shape.experts is not None else 0
    latent = 3 * stream + _context_projection(shape, settings) if shape.mla is not None else 0
    split = 3 * stream + _split_matmul(shape, settings, rank) if settings.awq_matmul == "split" else 0
    widest = max(dense, attention, mixture, latent, split)
    handover = 0 if rank.last else serving_activations.pipeline_handover(
        tokens=tokens, hidden_size=shape.hidden_size, element_bytes=width
    )  # fmt: skip
    return Branch(name="forward", activations=widest + handover, vision=kept)


def _joined(shape: RankShape, width: int) -> int:
    """Columns of gate and up projection, which are one matrix. [elements]"""
    return width * (2 if shape.gated else 1)


def _split_matmul(shape: RankShape, settings: Settings, rank: Rank) -> int:
    """The widest matrix is gate and up of a layer, or of an expert, which that time left whole on its rank. [bytes]"""
    whole = shape.experts.width * rank.tensor_parallel_size if shape.experts is not None else 0
    return serving_activations.split_matmul(
        tokens=settings.max_num_batched_tokens,
        columns=_joined(shape, max(shape.mlp_width, whole)),
        element_bytes=settings.element_bytes,
    )


def _dense(shape: RankShape, settings: Settings, ranks: int) -> int:
    tokens, width = settings.max_num_batched_tokens, settings.element_bytes
    if compiles(settings):
        return serving_activations.mlp_compiled(
            tokens=tokens,
            hidden_size=shape.hidden_size,
            width=shape.mlp_width,
            gated=shape.gated,
            element_bytes=width,
            l2_cache_bytes=settings.l2_cache_bytes,
        )
    return serving_activations.mlp_eager(
        tokens=tokens,
        hidden_size=shape.hidden_size,
        width=shape.mlp_width,
        gated=shape.gated,
        element_bytes=width,
        keeps_gate_up=settings.keeps_gate_up,
        reduced_copy=ranks > 1 and settings.release.reduces_out_of_place,
    )


def compiles(settings: Settings) -> bool:
    """Whether torch.compile runs the layers: the V1 engine without enforce_eager."""
    return not settings.legacy and not settings.eager


def _flush(settings: Settings) -> int:
    return settings.l2_cache_bytes if compiles(settings) else 0


def _context_projection(shape: RankShape, settings: Settings) -> int:
    latent = shape.mla
    if latent is None or settings.legacy:
        return 0
    context = serving_activations.mla_context_tokens(
        max_model_len=settings.max_model_len, max_num_seqs=settings.max_num_seqs, block_size=settings.block_size
    )
    return serving_activations.mla_context_projection(
        context_tokens=context,
        heads=shape.mla_heads,
        qk_nope_head_dim=latent.qk_nope_head_dim or 0,
        v_head_dim=latent.v_head_dim,
        element_bytes=settings.element_bytes,
    )


def _indexer_gather(shape: RankShape, settings: Settings) -> int:
    latent = shape.mla
    if latent is None or latent.index_head_dim is None:
        return 0
    row = latent.index_head_dim + ceil_div(latent.index_head_dim, 128) * 4
    return serving_activations.indexer_gather(max_model_len=settings.max_model_len, row_bytes=row)


# ---- sampler ----


def _sampler(model: Model, shape: RankShape, settings: Settings, kept: int) -> Branch:
    tokens, width, rows = settings.max_num_batched_tokens, settings.element_bytes, profiled_requests(model, settings)
    hidden = serving_activations.stream(tokens=tokens, hidden_size=shape.hidden_size, element_bytes=width)
    gathered = sampler.hidden_rows(rows=rows, hidden_size=shape.hidden_size, element_bytes=width)
    logits = sampler.logits(rows=rows, vocab_size=model.vocab_size, element_bytes=width)
    return Branch(
        name="sampler",
        activations=hidden + gathered,
        logits=logits,
        sampler=_sampler_buffers(model, settings, rows),
        vision=kept,
    )


def _sampler_buffers(model: Model, settings: Settings, rows: int, *, profiled: bool = True) -> int:
    vocabulary, release = model.vocab_size, settings.release
    if settings.runner_v2 and profiled and not release.v2_samples_with_parameters:
        return sampler.gumbel(rows=rows, vocab_size=vocabulary)
    if release.sampler == "sort" or settings.legacy:
        drawn = sampler.torch_sort(rows=rows, vocab_size=vocabulary)
    elif release.sampler == "triton":
        drawn = sampler.triton_top_k_top_p(rows=rows, vocab_size=vocabulary, multiprocessors=settings.multiprocessors)
    else:
        drawn = sampler.flashinfer_top_k_top_p(rows=rows, vocab_size=vocabulary)
    speculative = 0 if settings.legacy else sampler.rejection(
        rows=rows, vocab_size=vocabulary, element_bytes=settings.element_bytes,
        num_speculative_tokens=settings.speculative_tokens,
    ) - sampler.logits(rows=rows, vocab_size=vocabulary, element_bytes=settings.element_bytes)  # fmt: skip
    return max(drawn, speculative)


# ---- band ----


def _band(name: str, shape: RankShape, settings: Settings, *, thin: bool, images: Images) -> tuple[float, float]:
    """How much smaller and larger the truth may be; `thin`: quantized or dealt-out experts. [fraction of the peak]"""
    mixture = shape.experts is not None
    cases = (
        (not images.known, (0.15, 5.0)),
        (settings.legacy and images.long, (0.10, 1.6)),
        (settings.legacy and bool(images.kept), (0.25, 0.6)),
        (name == "encoder", (0.15, 0.3 if thin else 0.18)),
        (shape.mla is not None and name == "forward", (0.10, 1.5)),
        (mixture and thin, (0.05, 0.30)),
        (settings.runner_v2, (0.10, 0.15)),
        (bool(images.kept) and not mixture, (0.02, 0.05)),
        (name == "sampler", (0.03, 0.03)),
    )
    return next((band for holds, band in cases if holds), (0.06, 0.06))


__all__ = ["Peak", "Rank", "compiles", "peak"]
