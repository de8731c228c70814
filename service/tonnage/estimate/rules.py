"""The two published rules of thumb beside our answer, labelled as rules; never an input of it."""

from functools import lru_cache
from typing import Any

from tonnage.laws import rules_of_thumb as rules
from tonnage.spec.workload import Workload
from tonnage.units import GiB, ceil_div, format_size

_RULE_CARD = 24 * GiB
_RULE_CARDS_PER_HOST = 4


def rules_of_thumb(workload: Workload, trainable: int | None) -> dict[str, dict[str, Any]]:
    """
    What the two rules would say of this card.

    Args:
        workload: Resolved card.
        trainable: Trainable parameters as counted; None outside training. [unitless]

    Returns:
        `parameters_times_bits` and `lora_adam`, each with its formula, bytes and cards by the rule.
    """
    if trainable is None:
        trainable = workload.model.trainable_parameters
    usable = workload.gpu.memory_usable_bytes if workload.gpu is not None else None
    bits = round(workload.weight_format.nominal_bits or 16)
    return _rules(workload.model.parameters_total, bits, trainable, usable)


@lru_cache(maxsize=1024)
def _rules(parameters: int, bits: int, trainable: int | None, usable: int | None) -> dict[str, dict[str, Any]]:
    answers = {"parameters_times_bits": _parameters_times_bits(parameters, bits, usable)}
    if trainable:
        answers["lora_adam"] = _lora_adam(parameters, bits, trainable, usable)
    return answers


def _parameters_times_bits(parameters: int, bits: int, usable: int | None) -> dict[str, Any]:
    amount = rules.parameters_times_bits(parameters=parameters, bits=bits)
    return {
        "rule": "parameters x bits / 8 x 1.2",
        "parameters": parameters,
        "bits": bits,
        "weights_only_bytes": rules.weights_only(parameters=parameters, bits=bits),
        **_cards(amount, usable),
    }


def _lora_adam(parameters: int, bits: int, trainable: int, usable: int | None) -> dict[str, Any]:
    base = rules.weights_only(parameters=parameters, bits=bits)
    amount = rules.lora_adam(weights_bytes=base, trainable_parameters=trainable)
    return {
        "rule": "(base + trainable x 2 bytes x 4) x 1.2",
        "base_bytes": base,
        "trainable_parameters": trainable,
        **_cards(amount, usable),
    }


def _cards(amount: int, usable: int | None) -> dict[str, Any]:
    cards = rules.cards(required_bytes=amount, card_bytes=_RULE_CARD)
    answer: dict[str, Any] = {
        "bytes": amount,
        "text": format_size(amount),
        "cards_of_24_gib": cards,
        "hosts_of_4_cards": ceil_div(cards, _RULE_CARDS_PER_HOST),
    }
    if usable is not None:
        answer["cards_of_this_gpu"] = rules.cards(required_bytes=amount, card_bytes=usable)
    return answer
