"""config.json or GGUF header -> `Model`: the front door of this package."""

from collections.abc import Mapping
from typing import Any

from tonnage.spec.model import Model


def read_config(
    config: Mapping[str, Any],
    *,
    id: str | None = None,  # noqa: A002
    revision: str | None = None,
    parameters: int | None = None,
    source: str = "config",
    trust: str | None = None,
) -> Model:
    """
    Architecture of a Hugging Face config.json.

    Args:
        config: The literal config.json, or the keys of it that shape the model.
        id: Repository id to report.
        revision: Revision to report.
        parameters: Published count; decides between readings (with or without head) and sets the trust. [unitless]
        source: Where the config comes from.
        trust: Trust to report instead of the derived one.

    Returns:
        The model; the same object for the same content.

    Raises:
        MissingFact: Keys without which the architecture is not defined; `pointer` is /model/config/<key>.
        ContradictoryWorkload: Values that cannot be, such as a layer list of the wrong length.
    """
    raise NotImplementedError


def read_gguf(
    metadata: Mapping[str, Any],
    *,
    id: str | None = None,  # noqa: A002
    parameters: int | None = None,
) -> Model:
    """Architecture of the metadata key/values of a GGUF header."""
    raise NotImplementedError


def count_only(parameters: int, trainable_parameters: int | None = None) -> Model:
    """Model of which only the count is known."""
    return Model(parameters_total=parameters, trainable_parameters=trainable_parameters, source="count", trust="count")
