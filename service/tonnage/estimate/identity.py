"""What identifies an answer: the model as counted, the versions, the digest."""

import hashlib
from functools import lru_cache

import msgspec

from tonnage.architecture import describe_layers, parameters_by_component
from tonnage.kept import Kept
from tonnage.spec.model import Model
from tonnage.spec.report import ModelReport, ParameterReport, Versions
from tonnage.spec.workload import Workload
from tonnage.version import METHOD_VERSION, __version__

_encode_card = msgspec.json.Encoder(order="deterministic").encode
_reports: Kept[tuple[int, int | None], tuple[Model, ModelReport]] = Kept(4096)


@lru_cache(maxsize=64)
def versions(catalog_version: str) -> Versions:
    """Versions of service, catalogue and method."""
    return Versions(service=__version__, catalog=catalog_version, method=METHOD_VERSION)


def digest(workload: Workload) -> str:
    """
    Fingerprint of a question and of everything that answers it.

    Returns:
        "sha256:" and the hash of the card as understood and of the versions: equal on every replica and Python version.
    """
    return fingerprint(workload.card, workload.catalog_version)


def fingerprint(question: msgspec.Struct, catalog_version: str) -> str:
    """The same for a question that is no single card. [unitless]"""
    return "sha256:" + hashlib.sha256(_stamp(catalog_version) + _encode_card(question)).hexdigest()


@lru_cache(maxsize=64)
def _stamp(catalog_version: str) -> bytes:
    return f"{__version__}|{METHOD_VERSION}|{catalog_version}|".encode()


def model_report(workload: Workload, trainable: int | None) -> ModelReport:
    """The model as counted; made once per model and trainable count."""
    model = workload.model
    key = (id(model), trainable)
    held = _reports.get(key)
    if held is not None and held[0] is model:
        return held[1]
    return _reports.keep(key, (model, _report(model, trainable)))[1]


def _report(model: Model, trainable: int | None) -> ModelReport:
    return ModelReport(
        id=model.id,
        revision=model.revision,
        family=model.family,
        parameters=ParameterReport(
            total=model.parameters_total,
            active=model.parameters_active,
            trainable=trainable,
            by_component={str(name): count for name, count in parameters_by_component(model).items()}
            if model.known
            else {},
        ),
        source=model.source,
        trust=model.trust,
        layers=describe_layers(model) if model.known else "",
    )
