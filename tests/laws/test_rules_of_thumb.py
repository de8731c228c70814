"""The two published rules give their own worked numbers, and are called rules."""

import pytest

from tonnage.laws import rules_of_thumb
from tonnage.units import GB, MILLION, GiB

BILLION = 1000 * MILLION


def test_seven_billion_parameters_at_16_bit_are_14_gigabytes():
    size = rules_of_thumb.weights_only(parameters=7 * BILLION, bits=16)

    assert 14 * GB == size
    assert 13.04 == round(size / GiB, 2)


@pytest.mark.parametrize(
    ("parameters", "bits", "gib", "cards", "hosts"),
    [(405, 16, 905.2, 38, 10), (405, 4, 226.3, 10, 3), (70, 4, 39.1, 2, 1)],
)
def test_parameters_times_bits_with_a_fifth_on_top(parameters, bits, gib, cards, hosts):
    size = rules_of_thumb.parameters_times_bits(parameters=parameters * BILLION, bits=bits)
    counted = rules_of_thumb.cards(required_bytes=size, card_bytes=24 * GiB)

    assert gib == round(size / GiB, 1)
    assert cards == counted
    assert hosts == -(-counted // 4)


def test_lora_adam_of_half_a_billion_on_14_gigabytes_is_21_6():
    assert 21_600_000_000 == rules_of_thumb.lora_adam(weights_bytes=14 * GB, trainable_parameters=BILLION // 2)


def test_without_trained_parameters_only_the_fifth_is_added():
    assert 12 * GB == rules_of_thumb.lora_adam(weights_bytes=10 * GB, trainable_parameters=0)


def test_the_rule_rounds_up_to_a_whole_byte():
    assert 2 == rules_of_thumb.parameters_times_bits(parameters=1, bits=8)


def test_the_text_of_each_rule_says_it_is_one():
    for rule in (rules_of_thumb.weights_only, rules_of_thumb.parameters_times_bits, rules_of_thumb.lora_adam):
        assert "rule of thumb" in rule.__doc__
