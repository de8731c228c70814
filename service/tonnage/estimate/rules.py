"""The two published rules of thumb beside our answer, labelled as rules; never an input of it."""

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
    parameters = workload.model.parameters_total
    bits = round(workload.weight_format.nominal_bits or 16)
    if trainable is None:
        trainable = workload.model.trainable_parameters
    answers = {"parameters_times_bits": _parameters_times_bits(parameters, bits, workload)}
    if trainable:
        answers["lora_adam"] = _lora_adam(parameters, bits, trainable, workload)
    return answers


def _parameters_times_bits(parameters: int, bits: int, workload: Workload) -> dict[str, Any]:
    amount = rules.parameters_times_bits(parameters=parameters, bits=bits)
    return {
        "rule": "parameters x bits / 8 x 1.2",
        "parameters": parameters,
        "bits": bits,
        "weights_only_bytes": rules.weights_only(parameters=parameters, bits=bits),
        **_cards(amount, workload),
    }


def _lora_adam(parameters: int, bits: int, trainable: int, workload: Workload) -> dict[str, Any]:
    base = rules.weights_only(parameters=parameters, bits=bits)
    amount = rules.lora_adam(weights_bytes=base, trainable_parameters=trainable)
    return {
        "rule": "(base + trainable x 2 bytes x 4) x 1.2",
        "base_bytes": base,
        "trainable_parameters": trainable,
        **_cards(amount, workload),
    }


def _cards(amount: int, workload: Workload) -> dict[str, Any]:
    cards = rules.cards(required_bytes=amount, card_bytes=_RULE_CARD)
    answer: dict[str, Any] = {
        "bytes": amount,
        "text": format_size(amount),
        "cards_of_24_gib": cards,
        "hosts_of_4_cards": ceil_div(cards, _RULE_CARDS_PER_HOST),
    }
    if workload.gpu is not None:
        usable = workload.gpu.memory_usable_bytes
        answer["cards_of_this_gpu"] = rules.cards(required_bytes=amount, card_bytes=usable)
    return answer
