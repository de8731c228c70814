"""Bases that cannot be trained the way a card says."""

from tonnage.errors import ContradictoryWorkload
from tonnage.estimate.training.methods import ADAPTER_METHODS, LIGHT_METHODS
from tonnage.spec.facts import WeightFormat

_BESIDE = ADAPTER_METHODS | LIGHT_METHODS | {"q-galore"}
"""Methods that leave the base as it is, or step on a quantized one of their own."""


def refuse_base(method: str, base: WeightFormat) -> None:
    """
    Refuse a quantized base where the base itself trains, and a file that trainers dequantize.

    Args:
        method: As stated.
        base: Format of the weights.

    Raises:
        ContradictoryWorkload: With what would hold.

    Source: huggingface/transformers Trainer ("cannot perform fine-tuning on purely quantized models"), from_pretrained gguf_file
    """
    if base.training == "dequantized":
        raise ContradictoryWorkload(
            f"{base.id} is dequantized when a trainer loads it: state the dtype it trains in, such as bf16, or bnb-nf4",
            pointer="/weights/format",
        )
    if method not in _BESIDE and base.training == "frozen_base":
        raise ContradictoryWorkload(
            f"method {method} trains the base, and {base.id} has no gradients: state method lora or qlora, or a base in bf16",
            pointer="/weights/format",
        )
