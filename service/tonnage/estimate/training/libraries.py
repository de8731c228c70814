"""Behaviour that a library's version decides, whichever framework calls it."""

from collections.abc import Mapping
from functools import lru_cache

from tonnage.spec.engine import version_key


class Libraries:
    """Versions in force: what the card states, else what was current when the framework's release came out."""

    __slots__ = ("versions",)

    def __init__(self, stated: Mapping[str, str], current: Mapping[str, str]) -> None:
        self.versions = {**_contemporary(stated, current), **stated} if stated else current

    def at_least(self, name: str, version: str) -> bool:
        """Whether a library is that new; unknown ones are taken to be."""
        known = self.versions.get(name)
        return known is None or _key(known) >= _key(version)

    @property
    def keeps_four_bit_inputs(self) -> bool:
        """
        Inputs of frozen 4-bit linears stay with the graph.

        Source:
            bitsandbytes-foundation/bitsandbytes@9e753741 (2024-07-16, 0.43.2) autograd/_functions.py MatMul4Bit
        """
        return not self.at_least("bitsandbytes", "0.43.2")

    @property
    def adapters_follow(self) -> str:
        """
        Dtype of PEFT's adapters: "fp32", or "base" for that of the weight beside them (fp32 beside 4-bit ones).

        Source:
            huggingface/peft: fp32 before 0.6; base dtype until 0.12 (5bdbf2bcd); then 16-bit adapters become fp32
            (ae1ae20b7, autocast_adapter_dtype)
        """
        if self.at_least("peft", "0.12"):
            return "fp32"
        return "base" if self.at_least("peft", "0.6") else "fp32"

    @property
    def caller_keeps_logits(self) -> bool:
        """
        The loss is a function of its own, so that the 16-bit logits stay with the caller.

        Source:
            huggingface/transformers@v4.46.0 src/transformers/loss/loss_utils.py
        """
        return self.at_least("transformers", "4.46")

    @property
    def experts_are_linears(self) -> bool:
        """
        Experts are nn.Linear modules, looped over; later stacked and multiplied as groups.

        Source:
            huggingface/transformers@v5.0.0 src/transformers/integrations/moe.py
        """
        return not self.at_least("transformers", "5.0")

    @property
    def eight_bit_block(self) -> int:
        """
        Elements per scale of bitsandbytes' 8-bit states.

        Source:
            bitsandbytes-foundation/bitsandbytes CHANGELOG 0.44.0 (2048 -> 256)
        """
        return 256 if self.at_least("bitsandbytes", "0.44") else 2048


ERAS: tuple[tuple[str, dict[str, str]], ...] = (
    ("1.13", {"peft": "0.2.0", "bitsandbytes": "0.38.0"}),
    ("2.0", {"peft": "0.5.0", "bitsandbytes": "0.41.1"}),
    ("2.1", {"peft": "0.7.1", "bitsandbytes": "0.41.3"}),
    ("2.2", {"peft": "0.10.0", "bitsandbytes": "0.43.0"}),
    ("2.3", {"peft": "0.11.1", "bitsandbytes": "0.43.1"}),
    ("2.4", {"peft": "0.12.0", "bitsandbytes": "0.43.3"}),
)
"""Libraries that were current while a version of torch was: release dates on PyPI."""


def _contemporary(stated: Mapping[str, str], current: Mapping[str, str]) -> dict[str, str]:
    """An environment is as old as the oldest torch it states: libraries beside it are of the same time."""
    torch = stated.get("torch")
    if torch is None or _key(torch) >= _key(current.get("torch", "0")):
        return dict(current)
    for version, libraries in reversed(ERAS):
        if _key(version) <= _key(torch):
            return {**current, **libraries}
    return dict(current)


@lru_cache(maxsize=1024)
def _key(version: str) -> tuple[int, ...]:
    return version_key(version)
