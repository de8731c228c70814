"""A model by catalogue id, alias, Hub id, literal config, GGUF header or bare count -> its architecture."""

from typing import NamedTuple

from msgspec.structs import replace

from tonnage.architecture import count_only, read_config, read_gguf
from tonnage.catalog.contents import Catalog
from tonnage.catalog.copies import Copy, copy_of
from tonnage.errors import SizingError, UnknownName
from tonnage.spec.card import ModelCard, SizingCard
from tonnage.spec.facts import ModelFacts
from tonnage.spec.hub import Fetch, HubModel
from tonnage.spec.model import Model
from tonnage.spec.report import Assumption, Finding

INLINE = 'pass its config.json as {"model": {"config": {...}}}'


class Found(NamedTuple):
    """An architecture, the bytes of its checkpoint where known, what had to be assumed and what needs confirmation."""

    model: Model
    weight_bytes: int | None = None
    assumptions: tuple[Assumption, ...] = ()
    findings: tuple[Finding, ...] = ()


def find_model(catalog: Catalog, card: str | ModelCard, fetch: Fetch | None = None, pointer: str = "/model") -> Found:
    """
    Architecture of a model as a card names it.

    Args:
        catalog: The facts.
        card: Id, or an object with exactly one of id, config, gguf and parameters.
        fetch: Who to ask for repositories that the catalogue does not hold; None: nobody.
        pointer: JSON pointer of the field it stands in.

    Returns:
        The model, the same object for the same question.

    Raises:
        UnknownName: No such model here, and nobody to ask.
        SourceUnavailable: The Hub does not answer.
        MissingFact: The config lacks a key that defines the architecture.
    """
    if isinstance(card, str):
        return _by_id(catalog, card, None, fetch, f"{pointer}")
    if card.id is not None:
        return _by_id(catalog, card.id, card.revision, fetch, f"{pointer}/id")
    try:
        return _checked(Found(_given(card)))
    except SizingError as error:
        error.pointer = pointer + error.pointer.removeprefix("/model")
        raise


def _given(card: ModelCard) -> Model:
    if card.config is not None:
        return read_config(card.config, parameters=card.parameters, source="config of the request")
    if card.gguf is not None:
        return read_gguf(card.gguf, parameters=card.parameters)
    return count_only(card.parameters or 0, card.trainable_parameters)


def _by_id(catalog: Catalog, name: str, revision: str | None, fetch: Fetch | None, pointer: str) -> Found:
    key = ("model", name, revision, fetch is None)
    kept = catalog.resolved.get(key)
    if kept is not None:
        return kept  # type: ignore[no-any-return]
    facts = catalog.models.find(name)
    if facts is None and fetch is None and (copy := copy_of(catalog, name)) is not None:
        made: Found = catalog.remember(key, _from_copy(copy, name, revision))
        return made
    if facts is None or (revision not in (None, "main") and fetch is not None):
        return _from_hub(catalog, name, revision, fetch, pointer)
    found: Found = catalog.remember(key, _from_facts(facts, name, revision))
    return found


def _from_copy(copy: Copy, name: str, revision: str | None) -> Found:
    """A model that is only known as a copy of another, by its name."""
    found = _from_facts(copy.of, copy.of.id, revision)
    model = replace(found.model, id=name, source=f"{found.model.source}; by its name a copy of {copy.of.id}")
    words = f"{name} is taken for a copy of {copy.of.id} by its name"
    if copy.weight_format is not None:
        model = replace(model, weight_format=copy.weight_format, quantization_config=None)
        words += f", packed in {copy.weight_format}"
    doubt = Finding(status="needs_confirmation", reason=f"{words}: compare its config.json", field="/model")
    return found._replace(
        model=model,
        assumptions=(*found.assumptions, Assumption("model.copy_of", copy.of.id, words)),
        findings=(*found.findings, doubt),
    )


def _from_facts(facts: ModelFacts, name: str, revision: str | None) -> Found:
    model_id = next(
        (n for n in (facts.id, *facts.same_architecture, *facts.aliases) if n.lower() == name.lower()), facts.id
    )
    sibling = "" if model_id in (facts.id, *facts.aliases) else f"; same architecture as {facts.id}"
    model = read_config(
        facts.config,
        id=model_id,
        revision=revision,
        parameters=facts.parameters_total,
        source=facts.source + sibling,
        trust=facts.trust,
    )
    assumptions = (
        [Assumption("model.revision", "main", "the catalogue holds one revision of each model")]
        if revision not in (None, "main")
        else []
    )
    packed = model.weight_format or (None if sibling else facts.weight_format)
    model = replace(model, licence=model.licence or facts.licence, family=facts.family, weight_format=packed)
    return _checked(Found(model, None, tuple(assumptions)))


def _from_hub(catalog: Catalog, name: str, revision: str | None, fetch: Fetch | None, pointer: str) -> Found:
    if fetch is None:
        error = UnknownName("model", name, catalog.models.near(name), pointer=pointer)
        error.detail += (
            f"; the Hub is not asked here: {INLINE}, or name the model it was made from and its weights.format"
        )
        error.args = (error.detail,)
        raise error
    try:
        told = fetch(name, revision)
    except SizingError as error:
        error.pointer = error.pointer or pointer
        if isinstance(error, UnknownName):
            error.did_you_mean = UnknownName("model", name, catalog.models.near(name)).did_you_mean
        raise
    key = ("hub", told.id, told.revision)
    found: Found = catalog.resolved.get(key) or catalog.remember(key, _from_told(told))
    return found


def _from_told(told: HubModel) -> Found:
    plain = told.parameters if not told.config.get("quantization_config") else None
    model = read_config(told.config, id=told.id, revision=told.revision, parameters=plain, source=told.source)
    return _checked(Found(replace(model, licence=model.licence or told.licence), told.weight_bytes))


def _checked(found: Found) -> Found:
    """What is not known for certain of an architecture, as reasons to confirm the answer."""
    model = found.model
    reason = ""
    if model.id is not None and model.trust == "recalled":
        reason = f"the config of {model.id} is recalled and no published count confirms it: compare its config.json"
    if model.trust == "generic" or model.unknown_fields:
        fields = [name for name in model.unknown_fields if name != "parameters"]
        unread = f"; not understood: {', '.join(fields)}" if fields else ""
        reason = f"model type {model.model_type} is read by generic laws{unread}"
        if "parameters" in model.unknown_fields:
            counted = next(note for note in model.notes if note.startswith("the published count"))
            reason = f"{counted}; {reason}" if fields else counted
    if not reason:
        return found
    return found._replace(findings=(Finding(status="needs_confirmation", reason=reason, field="/model"),))


class Tag(NamedTuple):
    """A name of an engine's own library."""

    model: str
    """Id in the catalogue."""
    weight_format: str | None
    assumption: Assumption


def tag_of(catalog: Catalog, card: SizingCard) -> Tag | None:
    """
    The known model behind a name of the engine's own library, such as "llama3.1:8b" of Ollama's.

    Args:
        catalog: The facts.
        card: The card.

    Returns:
        Model and format; None where the engine has no library or the name is none of it.
    """
    name = card.model if isinstance(card.model, str) else card.model.id
    if name is None or card.serving is None:
        return None
    engine = catalog.engines.find(str(card.serving.__struct_config__.tag))
    model = None if engine is None else engine.tags.get(name.strip().lower().removesuffix(":latest"))
    if engine is None or model is None:
        return None
    return Tag(model, engine.tag_format, Assumption("model", model, f"what {name} is in the library of {engine.name}"))


def wanted_from_hub(catalog: Catalog, card: SizingCard) -> list[tuple[str, str | None]]:
    """
    Repositories of a card that the catalogue does not hold.

    Args:
        catalog: The facts.
        card: The card.

    Returns:
        (id, revision) of each, to be fetched before `resolve`; empty when the catalogue answers alone.
    """
    speculative = card.serving.speculative if card.serving is not None else None
    own = card.model if tag_of(catalog, card) is None else None
    asked = [_identity(c) for c in (own, speculative.model if speculative else None)]
    return [
        pair for pair in asked if pair is not None and (pair[1] not in (None, "main") or pair[0] not in catalog.models)
    ]


def _identity(card: str | ModelCard | None) -> tuple[str, str | None] | None:
    if isinstance(card, str):
        return card, None
    return None if card is None or card.id is None else (card.id, card.revision)
