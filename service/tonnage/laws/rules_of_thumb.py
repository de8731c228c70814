"""
The two published rules of thumb, shown beside the derived answer and labelled as rules.

They know neither context nor batch; the service uses them for comparison only.
"""

from fractions import Fraction

from tonnage.units import ceil_div

OVERHEAD = Fraction(12, 10)
LORA_BYTES_PER_TRAINABLE_PARAMETER = 2 * 4


def weights_only(*, parameters: int, bits: int) -> int:
    """
    Parameters times bits.

    Args:
        parameters: Parameters. [unitless]
        bits: Width of one parameter. [bits]

    Returns:
        Weights alone. [bytes]

    Source:
        rule of thumb: parameters x bits / 8
    """
    return ceil_div(parameters * bits, 8)


def parameters_times_bits(*, parameters: int, bits: int) -> int:
    """
    Weights at that width plus 20 %.

    Args:
        parameters: Parameters. [unitless]
        bits: Width of one parameter. [bits]

    Returns:
        Memory to serve the model by the rule. [bytes]

    Source:
        rule of thumb: M = P x 4 B / (32 / Q) x 1.2 (substratus.ai "Calculating GPU memory for serving LLMs", 2023-11)
    """
    return _rounded_up(Fraction(parameters * bits, 8) * OVERHEAD)


def lora_adam(*, weights_bytes: int, trainable_parameters: int) -> int:
    """
    Weights plus four 16-bit copies of what is trained (weight, gradient, two Adam moments), plus 20 %.

    Args:
        weights_bytes: Frozen base weights. [bytes]
        trainable_parameters: Parameters of the adapters. [unitless]

    Returns:
        Memory to fine-tune with LoRA and Adam by the rule. [bytes]

    Source:
        rule of thumb: (weights + trainable x 2 B x 4) x 1.2
    """
    return _rounded_up((weights_bytes + trainable_parameters * LORA_BYTES_PER_TRAINABLE_PARAMETER) * OVERHEAD)


def cards(*, required_bytes: int, card_bytes: int) -> int:
    """
    Cards whose memories add up to the requirement, as the rule counts them.

    Args:
        required_bytes: By one of the rules. [bytes]
        card_bytes: Memory of one card. [bytes]

    Returns:
        Number of cards. [unitless]

    Source:
        rule of thumb: memories of several cards are added up
    """
    return ceil_div(required_bytes, card_bytes)


def _rounded_up(amount: Fraction) -> int:
    return ceil_div(amount.numerator, amount.denominator)
