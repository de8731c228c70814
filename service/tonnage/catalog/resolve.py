"""A sizing card with every name resolved: `resolve(catalog, card) -> Workload`."""

import difflib
from typing import Any

from msgspec.structs import replace

from tonnage.catalog.contents import Catalog
from tonnage.catalog.gpus import find_gpu
from tonnage.catalog.models import Found, Tag, find_model, tag_of
from tonnage.catalog.namesakes import namesakes
from tonnage.errors import ContradictoryWorkload, SizingError, UnknownName, Unsupported
from tonnage.kept import recent
from tonnage.spec.card import (
    Failure,
    KvTypes,
    LlamaCpp,
    Measurement,
    Ollama,
    Placement,
    ReserveFraction,
    Serving,
    SizingCard,
    Training,
)
from tonnage.spec.engine import Profile, is_version, pick_release
from tonnage.spec.facts import Gpu, KvFormat, Optimizer, WeightFormat
from tonnage.spec.hub import Fetch
from tonnage.spec.model import Model
from tonnage.spec.report import Assumption, Finding
from tonnage.spec.workload import Workload
from tonnage.units import parse_size

Assumptions = list[Assumption]

SLIP = 0.9
"""Likeness above which an unknown draft model is a misspelt known one. [fraction]"""


def resolve(catalog: Catalog, card: SizingCard, *, fetch: Fetch | None = None) -> Workload:
    """
    What a card's names stand for.

    Args:
        catalog: The facts.
        card: As the caller sent it.
        fetch: Who to ask for models that the catalogue does not hold; None: nobody.

    Returns:
        The card with values in place of names, sizes in bytes.

    Raises:
        SizingError: With the JSON pointer of the field that names nothing, or contradicts another.
    """
    serving, reserve = card.serving, card.reserve
    fraction = reserve.fraction if isinstance(reserve, ReserveFraction) else 0.0
    return replace(
        _of_the_same_names(catalog, card, fetch),
        card=card,
        serving=None if serving is None else _sizes(serving),
        training=card.training,
        placement=card.placement,
        reserve_bytes=0 if isinstance(reserve, ReserveFraction) else _size(reserve, "/reserve"),
        reserve_fraction=fraction,
        measurements=tuple([_measurement(m, n) for n, m in enumerate(card.measurements)]),
        failure=None if card.failure is None else _failure(card.failure),
    )


def _of_the_same_names(catalog: Catalog, card: SizingCard, fetch: Fetch | None) -> Workload:
    """A workload of this card or of another that names the same model, format, GPU, tool and types."""
    key = _names(card)
    if key is None:
        return _named(catalog, card, fetch)
    kept: Workload | None = catalog.named.get(key)
    if kept is None:
        kept = _named(catalog, card, fetch)
        if fetch is None or key[0] in catalog.models:
            catalog.named.keep(key, kept)
    return kept


def _names(card: SizingCard) -> tuple[Any, ...] | None:
    """Everything that resolving looks up; None where a card describes instead of naming."""
    serving, training, weights = card.serving, card.training, card.weights
    if not isinstance(card.model, str) or weights.bytes is not None:
        return None
    if serving is not None:
        if serving.speculative is not None:
            return None
        tool: tuple[Any, ...] = (type(serving), serving.engine_version, serving.kv_cache_dtype, serving.dtype)
    elif training is not None:
        stated = (training.method, training.optimizer, training.weight_dtype)
        tool = (training.framework, training.framework_version, *stated)
    else:
        tool = ()
    return (card.model, weights.format, card.placement.gpu, *tool)


def _named(catalog: Catalog, card: SizingCard, fetch: Fetch | None) -> Workload:
    """The workload of a card's names alone: it may be kept, so it holds nothing else that the caller wrote."""
    tag = tag_of(catalog, card)
    found = find_model(catalog, card.model if tag is None else tag.model, fetch)
    serving, training = card.serving, card.training
    assumptions: Assumptions = [*found.assumptions, *(() if tag is None else (tag.assumption,))]
    weight_format = _weight_format(catalog, card, found.model, assumptions, tag)
    profile, certain, tool = _profile(catalog, serving, training)
    draft, unknowns = _draft(catalog, serving, fetch)
    return Workload(
        card=SizingCard(model=card.model),
        model=found.model,
        weight_format=weight_format,
        weight_bytes=_weight_bytes(card, found, weight_format),
        profile=profile,
        profile_certain=certain,
        tool=tool,
        kv_formats=None if serving is None else _kv_formats(catalog, serving),
        optimizer=None if training is None else _optimizer(catalog, training, profile, assumptions),
        draft=draft,
        placement=Placement(),
        gpu=_gpu(catalog, card.placement.gpu, assumptions),
        namesakes=_namesakes(catalog, card.placement.gpu),
        assumptions=tuple(assumptions),
        findings=(*found.findings, *map(_unconfirmed, unknowns), *_without_experts(weight_format, found.model)),
        unknowns=unknowns,
        catalog_version=catalog.version,
        formats=catalog.formats.entries,
    )


def _weight_format(
    catalog: Catalog, card: SizingCard, model: Model, assumptions: Assumptions, tag: Tag | None
) -> WeightFormat:
    if card.weights.format is not None:
        stated = catalog.formats.get(card.weights.format, "/weights/format")
        if stated.kind == "plain" and card.training is not None and card.training.method == "qlora":
            raise ContradictoryWorkload(
                f"QLoRA trains on a quantized base, {stated.id} is not quantized: state such a format, or method lora",
                pointer="/weights/format",
            )
        return stated
    name, why = _own_format(card, model, tag)
    own = catalog.formats.get(name, "/weights/format")
    if own.as_gguf is not None and isinstance(card.serving, LlamaCpp | Ollama):
        name, why = own.as_gguf, f"the checkpoint is stored in {own.id}: its GGUF file, which the engine reads"
        own = catalog.formats.get(name, "/weights/format")
    assumptions.append(Assumption("weights.format", name, why))
    return own


def _own_format(card: SizingCard, model: Model, tag: Tag | None) -> tuple[str, str]:
    if model.weight_format is not None:
        return model.weight_format, "the format the checkpoint is stored in"
    if tag is not None and tag.weight_format is not None:
        return tag.weight_format, "what the library of the engine packs its tags in"
    if model.quantization_config:
        raise Unsupported(
            f"quantization_config of method {model.quantization_config.get('quant_method')!r} stands for no known weight format",
            ["weights.format"],
            pointer="/weights/format",
        )
    training = card.training
    if training is not None and training.method == "qlora":
        return "bnb-nf4", "QLoRA keeps the base model in NF4"
    stated = training.weight_dtype if training is not None else card.serving.dtype if card.serving is not None else None
    if stated is not None and stated != "auto":
        return stated, "the dtype stated for the weights"
    if not model.known:
        return model.dtype, "16 bit, for a bare count"
    tags = (
        "; tags of `ollama run` are Q4_K_M: name one, or state the format" if isinstance(card.serving, Ollama) else ""
    )
    return model.dtype, f"the checkpoint's own dtype{tags}"


def _weight_bytes(card: SizingCard, found: Found, weight_format: WeightFormat) -> int | None:
    if card.weights.bytes is not None:
        return _size(card.weights.bytes, "/weights/bytes")
    own = found.model.weight_format or found.model.dtype
    return found.weight_bytes if weight_format.id == own else None


def _gpu(catalog: Catalog, name: str | None, assumptions: Assumptions) -> Gpu | None:
    if name is None:
        return None
    found = catalog.resolved.get(("gpu", name)) or catalog.remember(
        ("gpu", name), find_gpu(catalog, name, "/placement/gpu")
    )
    if found[1] is not None:
        assumptions.append(found[1])
    return found[0]  # type: ignore[no-any-return]


def _namesakes(catalog: Catalog, name: str | None) -> tuple[Gpu, ...]:
    if name is None or name in catalog.gpus.entries:
        return ()
    kept = catalog.resolved.get(("namesakes", name))
    return kept if kept is not None else catalog.remember(("namesakes", name), namesakes(catalog, name))  # type: ignore[no-any-return]  # kept as Any


def tool_of(catalog: Catalog, card: SizingCard) -> Profile | None:
    """The engine or framework of a card, None where neither is stated."""
    return _profile(catalog, card.serving, card.training)[2]


def _profile(catalog: Catalog, serving: Serving | None, training: Training | None) -> tuple[Any, bool, Profile | None]:
    if serving is not None:
        engine = str(serving.__struct_config__.tag)
        return _release(catalog, "engines", engine, serving.engine_version, "/serving/engine")
    if training is not None:
        return _release(catalog, "frameworks", training.framework, training.framework_version, "/training/framework")
    return None, True, None


def _release(catalog: Catalog, area: str, name: str, version: str | None, pointer: str) -> tuple[Any, bool, Profile]:
    key = (area, name, version)
    kept = catalog.resolved.get(key)
    if kept is None:
        index = catalog.engines if area == "engines" else catalog.frameworks
        profile: Profile | None = index.find(name)
        if profile is None:
            raise Unsupported(f"{name} is not modelled yet", (p.id for p in index), pointer=pointer)
        if version is not None and not is_version(version):
            expected = "a release such as 0.11.0, or a month or day such as 2025-09"
            raise SizingError(f"{version!r} is no version of {name}: state {expected}", pointer=f"{pointer}_version")
        release, certain = pick_release(
            profile.releases, version, known_until=profile.known_until, known_until_date=profile.known_until_date
        )
        kept = catalog.remember(key, (release, certain, profile))
    return kept  # type: ignore[no-any-return]


def _kv_formats(catalog: Catalog, serving: Serving) -> tuple[KvFormat, KvFormat] | None:
    stated = serving.kv_cache_dtype
    if stated == "auto":
        return None
    if isinstance(stated, KvTypes):
        return (
            catalog.kv_formats.get(stated.k, "/serving/kv_cache_dtype/k"),
            catalog.kv_formats.get(stated.v, "/serving/kv_cache_dtype/v"),
        )
    found = catalog.kv_formats.get(stated, "/serving/kv_cache_dtype")
    return found, found


def _optimizer(catalog: Catalog, training: Training, profile: Any, assumptions: Assumptions) -> Optimizer | None:
    if training.optimizer is not None:
        stated = catalog.optimizers.get(training.optimizer, "/training/optimizer")
        return _of_method(catalog, training.method, stated, assumptions) or stated
    default = getattr(profile, "optimizer", None)
    if default is None:
        return None
    inner = catalog.optimizers.get(default, "/training/optimizer")
    around = _of_method(catalog, training.method, inner, assumptions)
    if around is None:
        assumptions.append(Assumption("training.optimizer", default, f"default of {training.framework}"))
    return around or inner


def _of_method(catalog: Catalog, method: str, inner: Optimizer, assumptions: Assumptions) -> Optimizer | None:
    """The optimizer that a method such as galore puts around the one stated, which steps on projected gradients."""
    around = [o for o in catalog.optimizers if o.method == method and not o.arguments.get("layerwise")]
    if inner.method is not None or not around:
        return None
    chosen = next((o for o in around if o.arguments["projected"] == inner.id), around[0])
    assumptions.append(Assumption("training.optimizer", chosen.id, f"method {method} around {inner.id}"))
    return chosen


def _draft(catalog: Catalog, serving: Serving | None, fetch: Fetch | None) -> tuple[Model | None, tuple[str, ...]]:
    """
    Draft model, and what is unknown of it.

    Draft heads are small, seldom catalogued, and made for one model: one that nobody knows is left out and named.
    A near miss of a known name is taken for a slip and refused.
    """
    speculative = None if serving is None else serving.speculative
    if speculative is None or speculative.model is None:
        return None, ()
    try:
        return find_model(catalog, speculative.model, fetch, "/serving/speculative/model").model, ()
    except UnknownName as error:
        if difflib.get_close_matches(error.name.lower(), map(str.lower, error.did_you_mean), n=1, cutoff=SLIP):
            raise
        return None, (f"weights, cache and activations of the draft model {error.name}, which no source here knows",)


def _without_experts(weight_format: WeightFormat, model: Model) -> tuple[Finding, ...]:
    """A format that packs experts only leaves a model without any as it is."""
    if not weight_format.experts_only or not model.known or any(group.layer.moe for group in model.layers):
        return ()
    reason = f"{weight_format.id} packs experts only, and this model has none: its weights are counted in {model.dtype}"
    return (Finding(status="needs_confirmation", reason=reason, field="/weights/format"),)


def _unconfirmed(unknown: str) -> Finding:
    return Finding(status="needs_confirmation", reason=f"left out: {unknown}", field="/serving/speculative/model")


def _sizes(serving: Serving) -> Serving:
    shared, prompt = serving.shared_prefix_tokens, serving.input_tokens
    if shared and prompt is not None and shared > prompt:
        raise ContradictoryWorkload(
            f"a shared prefix of {shared} tokens is longer than the input it begins, input_tokens {prompt}",
            pointer="/serving/shared_prefix_tokens",
        )
    pool = serving.kv_cache_memory_bytes
    if not isinstance(pool, str):
        return serving
    return replace(serving, kv_cache_memory_bytes=_size(pool, "/serving/kv_cache_memory_bytes"))


def _measurement(measurement: Measurement, number: int) -> Measurement:
    if not isinstance(measurement.peak_bytes, str):
        return measurement
    return replace(measurement, peak_bytes=_size(measurement.peak_bytes, f"/measurements/{number}/peak_bytes"))


def _failure(failure: Failure) -> Failure:
    stated = {"requested_bytes": failure.requested_bytes, "free_bytes": failure.free_bytes}
    texts = {k: _size(v, f"/failure/{k}") for k, v in stated.items() if isinstance(v, str)}
    return replace(failure, **texts) if texts else failure


_parsed = recent(1024)(parse_size)


def _size(size: int | str, pointer: str) -> int:
    try:
        return size if isinstance(size, int) else _parsed(size)
    except ValueError as error:
        raise ContradictoryWorkload(str(error), pointer=pointer) from error
