"""Data files and an overlay directory -> `Catalog`: strict, pure, all or nothing."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tonnage.catalog.checks import problems_of
from tonnage.catalog.contents import Catalog
from tonnage.catalog.files import Fields, Layers, convert, read_layers, refuse
from tonnage.catalog.lookup import Index, gpu_fold, model_fold
from tonnage.catalog.profiles import read_profiles
from tonnage.errors import CatalogError
from tonnage.spec.facts import Gpu, KvFormat, ModelFacts, Optimizer, Package, WeightFormat

BUILTIN = Path(__file__).parent / "data"

T = TypeVar("T")


def load_catalog(overlay: Path | None = None, *, builtin: Path = BUILTIN) -> Catalog:
    """
    Everything the data files say.

    Args:
        overlay: Directory whose records go on top of the built-in ones.
        builtin: Directory of the built-in data.

    Returns:
        An immutable catalogue.

    Raises:
        CatalogError: Naming file, record and path of every problem; nothing is loaded then.
    """
    catalog, problems = read_catalog([builtin] if overlay is None else [builtin, overlay])
    refuse(problems)
    if catalog is None:  # pragma: no cover - a catalogue without problems is always there
        raise CatalogError("no catalogue")
    return catalog


def read_catalog(directories: Sequence[Path]) -> tuple[Catalog | None, list[str]]:
    """
    A catalogue as far as it can be read, and everything that is wrong with it.

    Args:
        directories: Built-in data first, then overlays.

    Returns:
        The catalogue, None where names clash; problems that name file, record and path.
    """
    try:
        layers = read_layers(directories)
        catalog = _catalog(layers)
    except CatalogError as error:
        return None, str(error).splitlines()
    return catalog, [*layers.problems, *problems_of(catalog)]


def _catalog(layers: Layers) -> Catalog:
    gpus = _records(layers, "gpu", Gpu)
    packages = _records(layers, "package", Package, _with_sources)
    return Catalog(
        version=layers.version,
        gpus=Index("gpu", gpus, fold=gpu_fold),
        packages=Index("package", packages, fold=model_fold),
        formats=Index("weight format", _records(layers, "format", WeightFormat)),
        kv_formats=Index("KV cache format", _records(layers, "kv_format", KvFormat)),
        optimizers=Index("optimizer", _records(layers, "optimizer", Optimizer)),
        models=_models(_records(layers, "model", ModelFacts, _with_nulls)),
        engines=Index("engine", read_profiles(layers, "engines")),
        frameworks=Index("framework", read_profiles(layers, "frameworks")),
        gpu_defaults={gpu_fold(name): gpu for gpu in gpus for name in gpu.default_for},
        instances=_instances(packages),
    )


def _instances(packages: Sequence[Package]) -> dict[str, Package]:
    """Packages by the provider's own name of the instance type; names that stand for several GPUs are left out."""
    found: dict[str, Package] = {}
    doubtful: set[str] = set()
    for package in packages:
        if package.name is None or package.gpu_share is not None:
            continue
        known = found.setdefault(gpu_fold(package.name), package)
        if (known.gpu, known.gpus_per_host) != (package.gpu, package.gpus_per_host):
            doubtful.add(gpu_fold(package.name))
    return {name: package for name, package in found.items() if name not in doubtful}


def _records(
    layers: Layers, kind: str, record_type: type[T], prepare: Callable[[Fields], Fields] = lambda fields: fields
) -> list[T]:
    made = (convert(layers, kind, record, record_type, prepare) for record in layers.records[kind].values())
    return [record for record in made if record is not None]


def _with_sources(fields: Fields) -> Fields:
    """An offer without a source of its own has that of its package."""
    source, offers = fields.get("source"), fields.get("offers")
    if not isinstance(offers, list) or not isinstance(source, str):
        return fields
    return {**fields, "offers": [{"source": source, **o} if isinstance(o, dict) else o for o in offers]}


def _with_nulls(fields: Fields) -> Fields:
    """TOML has no null: `null_keys` of a table lists the keys it holds as null. The architectures are part of a config."""
    config = _nulls_back(fields.get("config", {}))
    if not isinstance(config, dict) or "architectures" not in fields:
        return {**fields, "config": config}
    return {**fields, "config": {"architectures": fields["architectures"], **config}}


def _nulls_back(value: Any) -> Any:
    if isinstance(value, list):
        return [_nulls_back(item) if isinstance(item, dict | list) else item for item in value]
    if not isinstance(value, dict):
        return value
    table = {k: _nulls_back(v) if isinstance(v, dict | list) else v for k, v in value.items() if k != "null_keys"}
    return {**table, **dict.fromkeys(value.get("null_keys", ()))}


def _models(models: list[ModelFacts]) -> Index[ModelFacts]:
    """Repositories of one architecture, and every name without its owner, count unless they have records of their own."""
    ids = {model.id for model in models}

    def nicknames(model: ModelFacts) -> Iterable[str]:
        others = [name for name in model.same_architecture if name not in ids]
        yield from others
        yield from (name.partition("/")[2] or name for name in (model.id, *model.aliases, *others))

    return Index("model", models, fold=model_fold, nicknames=nicknames)
