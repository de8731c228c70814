"""
Whether the engine or framework runs what a card states, beside memory: accelerator, formats, kinds of parallelism.

/fit judges the same facts as requirements of their own; here they are reasons of the verdict.
"""

from collections.abc import Iterator

from tonnage.errors import Unsupported
from tonnage.estimate.backends import capability, runs
from tonnage.estimate.placement import support
from tonnage.kept import recent
from tonnage.spec.card import Placement, Serving, Training
from tonnage.spec.engine import Hardware
from tonnage.spec.facts import Gpu, KvFormat, WeightFormat
from tonnage.spec.report import Finding, Verdict
from tonnage.spec.workload import Workload

_KINDS = ("tensor", "pipeline", "data", "expert", "context")
_ONE_CONTEXT = frozenset({"vllm", "sglang", "tgi", "tensorrt-llm"})
"""Engines that refuse a request longer than max_model_len; others shift, roll or cut."""


def support_findings(workload: Workload) -> tuple[Finding, ...]:
    """
    What stands against the card besides memory.

    Args:
        workload: Resolved card.

    Returns:
        Findings that are not met; empty for what is known to run.

    Raises:
        Unsupported: The engine does not run a stated kind of parallelism.
    """
    serving, training = workload.serving, workload.training
    if serving is None and training is None:
        return ()
    engine = None if serving is None else str(serving.__struct_config__.tag)
    framework = None if training is None else training.framework
    found = layout_findings(workload.placement, engine, framework)
    found += _readable(engine or framework, engine, workload.gpu, workload.weight_format, workload.kv_formats)
    if workload.gpu is not None:
        found += _accelerator(engine, framework, runs(workload.tool), workload.gpu)
        found += attention_findings(serving, training, workload.gpu)
    if not workload.model.known:
        found = (*found, _COUNT_ALONE)
    return found if serving is None else found + _too_long(serving, engine)


_BY_LAYERS = frozenset({"llama.cpp", "ollama", "transformers"})
"""Engines whose accounts spread whole layers over all stated GPUs."""
_READ_AS_LAYERS = Finding(
    status="needs_confirmation",
    reason="tensor_parallel_size is read as that many devices of a layer split: memory of split matrices is not modelled",
    field="/placement/tensor_parallel_size",
)
_COUNT_ALONE = Finding(
    status="needs_confirmation",
    reason="only a parameter count is known: cache and activations follow from layers, heads and vocabulary; pass the config",
    field="/model",
)


@recent(256)
def layout_findings(placement: Placement, engine: str | None, framework: str | None) -> tuple[Finding, ...]:
    """
    Refuse a layout that the engine has no code for; training laws hold for any, so there it is to be confirmed.

    Args:
        placement: As stated.
        engine: Serving engine, or None.
        framework: Training framework, or None.

    Returns:
        What is answered although the engine or framework is not known to run it.

    Raises:
        Unsupported: With the kinds that it runs.
    """
    found: tuple[Finding, ...] = ()
    kinds = support(engine=engine, framework=framework)
    for kind in _KINDS:
        if getattr(placement, f"{kind}_parallel_size") == 1 or getattr(kinds, kind):
            continue
        if kind == "tensor" and engine in _BY_LAYERS:
            found = (_READ_AS_LAYERS,)
        elif framework is not None:
            reason = f"{framework} is not known to run {kind} parallelism ({kinds.source}): answered as if it did"
            field = f"/placement/{kind}_parallel_size"
            found = (*found, Finding(status="needs_confirmation", reason=reason, field=field))
        else:
            raise Unsupported(
                f"{engine} does not run {kind} parallelism ({kinds.source})",
                [f"{other}_parallel_size" for other in _KINDS if getattr(kinds, other)] or ["one GPU"],
                pointer=f"/placement/{kind}_parallel_size",
            )
    return found


@recent(4096)
def _accelerator(engine: str | None, framework: str | None, where: Hardware, gpu: Gpu) -> tuple[Finding, ...]:
    """What stands against the engine or framework on this accelerator."""
    who, field = engine or framework, "/serving/engine" if engine is not None else "/training/framework"
    found: tuple[Finding, ...] = ()
    old = too_old(who or "", where, gpu)
    if old is not None:
        found = (Finding(status=old[0], reason=f"{old[1]} ({where.source})", field=field),)
    if gpu.vendor in where.possible:
        words = f"{who} on {gpu.vendor} depends on a plugin or branch, whose memory is not modelled"
        return (*found, Finding(status="needs_confirmation", reason=f"{words} ({where.source})", field=field))
    if gpu.vendor not in where.established:
        words = f"{who} does not run on {gpu.vendor} ({where.source})"
        return (*found, Finding(status="excluded", reason=words, field=field))
    return found


def too_old(who: str, where: Hardware, gpu: Gpu) -> tuple[Verdict, str] | None:
    """
    An NVIDIA generation older than those an engine's packages are built for.

    Args:
        who: Engine or framework, as it is called.
        where: What it runs on.
        gpu: The accelerator.

    Returns:
        Excluded, or to be confirmed where it is reported to run all the same; None for one that is not too old.
    """
    have, least = capability(gpu.compute_capability), capability(where.minimum_compute_capability)
    if have is None or least is None or have >= least:
        return None
    possible = capability(where.possible_compute_capability)
    if possible is None or have < possible:
        return "excluded", (
            f"{who} needs compute capability {where.possible_compute_capability or where.minimum_compute_capability}, "
            f"{gpu.name} has {gpu.compute_capability}"
        )
    words = f"{who} is built for compute capability {where.minimum_compute_capability} and newer, {gpu.name} has"
    return "needs_confirmation", f"{words} {gpu.compute_capability}: {where.possible_how}"


_ATTENTION = {"flash_attention_2": "8.0"}
"""Compute capability of attention kernels that PyTorch does not bring. Source: Dao-AILab/flash-attention README."""


def attention_findings(serving: Serving | None, training: Training | None, gpu: Gpu) -> tuple[Finding, ...]:
    """
    A stated attention kernel that this GPU has no code for.

    Args:
        serving: As stated.
        training: As stated.
        gpu: What it is to run on.

    Returns:
        One finding, or none.
    """
    stated = getattr(training or serving, "attn_implementation", None)
    if stated not in _ATTENTION:
        return ()
    area = "serving" if training is None else "training"
    return _attention(stated, f"/{area}/attn_implementation", gpu)


@recent(256)
def _attention(kernel: str, field: str, gpu: Gpu) -> tuple[Finding, ...]:
    have, least = capability(gpu.compute_capability), capability(_ATTENTION[kernel])
    if have is None or least is None or have >= least:
        return ()
    words = (
        f"{kernel} needs compute capability {_ATTENTION[kernel]}, {gpu.name} has {gpu.compute_capability}: state sdpa"
    )
    return (Finding(status="excluded", reason=words, field=field),)


@recent(4096)
def _readable(
    tool: str | None,
    engine: str | None,
    gpu: Gpu | None,
    weight_format: WeightFormat,
    kv_formats: tuple[KvFormat, KvFormat] | None,
) -> tuple[Finding, ...]:
    return tuple(_formats(tool, engine, gpu, weight_format, kv_formats))


def _formats(
    tool: str | None,
    engine: str | None,
    gpu: Gpu | None,
    weight_format: WeightFormat,
    kv_formats: tuple[KvFormat, KvFormat] | None,
) -> Iterator[Finding]:
    yield from format_findings(tool, engine, gpu, weight_format)
    field = "/serving/kv_cache_dtype"
    for kind in dict.fromkeys(kv_formats or ()):
        yield from _named(engine, kind, field)
        if gpu is not None:
            yield from _too_old(gpu, kind, kind.minimum_compute_capability, field)


@recent(4096)
def format_findings(
    tool: str | None, engine: str | None, gpu: Gpu | None, weight_format: WeightFormat
) -> tuple[Finding, ...]:
    """
    What stands against a weight format; /estimate and /fit both ask this.

    Args:
        tool: Engine or framework, or None.
        engine: Serving engine, or None.
        gpu: The accelerator, None: any.
        weight_format: How the weights are stored.

    Returns:
        Findings that are not met.
    """
    found = [*_named(engine, weight_format, "/weights/format")]
    if gpu is not None:
        if weight_format.kind != "plain":
            found += _too_old(gpu, weight_format, weight_format.least_capability(tool), "/weights/format")
        found += _without_kernels(engine, gpu, weight_format)
    return tuple(found)


def _named(engine: str | None, kind: WeightFormat | KvFormat, field: str) -> Iterator[Finding]:
    if engine is not None and kind.engines and not {"all", engine} & set(kind.engines):
        words = (
            f"{kind.id} is not among the formats {engine} is known to read; those that do: {', '.join(kind.engines)}"
        )
        yield Finding(status="needs_confirmation", reason=words, field=field)


def _too_old(gpu: Gpu, kind: WeightFormat | KvFormat, needed: str | None, field: str) -> Iterator[Finding]:
    have, least = capability(gpu.compute_capability), capability(needed)
    if have is not None and least is not None and have < least:
        words = f"{kind.id} needs {needed}, {gpu.name} has {gpu.compute_capability}"
        yield Finding(status="excluded", reason=words, field=field)


def _without_kernels(engine: str | None, gpu: Gpu, weight_format: WeightFormat) -> Iterator[Finding]:
    """Kernels that nobody has established on this accelerator."""
    words, native, widened = "", weight_format.native_dtype, weight_format.weight_only_engines
    if weight_format.id == "bf16" and "bf16" not in gpu.native_dtypes and engine in _REFUSES_BF16:
        words = f"{gpu.name} has no native bf16: the engine has to be told dtype float16"
    elif weight_format.kind == "linear" and gpu.vendor != "nvidia":
        known = weight_format.kernels.get(engine or "", ())
        if not {gpu.vendor, gpu.compute_capability} & set(known):
            words = f"kernels of {weight_format.id} on {gpu.name} are not established"
    elif widened is not None and engine is not None and engine not in widened and native not in gpu.native_dtypes:
        words = (
            f"{gpu.name} has no native {native}: weight-only kernels of {weight_format.id} are only established for "
        )
        words += ", ".join(widened)
    if words:
        yield Finding(status="needs_confirmation", reason=words, field="/weights/format")


_REFUSES_BF16 = frozenset({"vllm", "sglang", "tgi"})
"""Engines that do not emulate bf16."""


def _too_long(serving: Serving, engine: str | None) -> tuple[Finding, ...]:
    tokens = (serving.input_tokens or 0) + (serving.output_tokens or 0)
    if engine not in _ONE_CONTEXT or serving.max_model_len is None or tokens <= serving.max_model_len:
        return ()
    reason = f"a request of {tokens} tokens is longer than max_model_len {serving.max_model_len}: the engine refuses it"
    return (Finding(status="excluded", reason=reason, field="/serving/max_model_len"),)
