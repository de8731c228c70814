"""Items of an answer as formulas with the numbers put in."""

import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from fractions import Fraction

import msgspec
import pytest
from tests.golden import drawn as drawing
from tests.golden.predictions import cases

from tonnage.errors import SizingError
from tonnage.explain import explained
from tonnage.library import builtin, estimate
from tonnage.spec.card import SizingCard

CASES = cases()
MARKUP = {"math", "mtable", "mtr", "mtd", "mrow", "mfrac", "msup", "mi", "mn", "mo", "mtext"}


def asked(name):
    return msgspec.convert(CASES[name], SizingCard)


@pytest.fixture(scope="module")
def llama():
    """Llama 3.1 8B under vLLM on one card: derivations by component, the first of each."""
    found = {}
    for derivation in explained(builtin(), asked("vllm 0.19.0 llama 8b on h100")).derivations:
        found.setdefault(derivation.component, derivation)
    return found


@pytest.mark.parametrize("name", CASES)
def test_an_answer_that_is_explained_says_the_same(name):
    plain, told = estimate(CASES[name]), explained(builtin(), asked(name))

    assert plain == msgspec.structs.replace(told, derivations=msgspec.UNSET)


@pytest.mark.parametrize("name", CASES)
def test_every_item_has_a_derivation_and_an_exact_one_ends_in_its_bytes(name):
    told = explained(builtin(), asked(name))
    known = {(d.component, d.law, d.expected_bytes, d.detail): d for d in told.derivations}

    for item in (item for gpu in told.gpus for phase in gpu.phases for item in phase.items):
        derivation = known[item.component, item.law, item.bytes.expected, item.detail]
        if derivation.exact:
            assert item.bytes.expected == derivation.steps[-1].value


def counted(text):
    """The value of a line of numbers, by a calculator that knows nothing of laws."""
    plain = text.replace(",", "").replace("×", "*").replace("−", "-").replace("^", "**")
    plain = plain.replace("MiB", "1048576").replace("KiB", "1024").replace("GiB", "1073741824")
    plain = plain.replace("⌈", "ceil(").replace("⌉", ")").replace("⌊", "floor(").replace("⌋", ")")
    exact = re.sub(r"(?<![\w.])(\d+(?:\.\d+)?)(?![\w.])", r"F('\1')", plain)
    names = {"F": Fraction, "ceil": math.ceil, "floor": math.floor}
    return eval(exact, {"__builtins__": {}}, names)


@pytest.mark.parametrize("name", CASES)
def test_numbers_put_in_give_the_value_that_stands_beside_them(name):
    told = explained(builtin(), asked(name))
    lines = [s for d in told.derivations for s in d.steps if not re.search(r"[a-zA-Z_]{4,}|min|max", s.numbers)]

    wrong = [(s.numbers, s.value) for s in lines if abs(counted(s.numbers) - s.value) > 1e-9 * abs(s.value)]

    assert [] == wrong


def test_keys_and_values_are_counted_from_one_head_to_the_pool(llama):
    steps = {step.name: step for step in llama["kv_cache"].steps}

    assert "2 × 32 × 8 × 128 × 2" == steps["one token"].numbers
    assert 131_072 == steps["one token"].value
    assert steps["kv cache"].numbers.endswith(" × 131,072")


def test_what_the_requests_need_of_the_pool_is_counted_too():
    card = CASES["vllm 0.19.0 llama 8b on h100"] | {
        "serving": {"engine": "vllm", "max_model_len": 8192, "concurrency": 16}
    }
    told = explained(builtin(), msgspec.convert(card, SizingCard))
    lines = {s.name: s for d in told.derivations if d.component == "kv_cache" for s in d.steps}

    assert "16 × 8,192 × 131,072" == lines["needed by the requests"].numbers
    assert 16 * 8192 * 131_072 == lines["needed by the requests"].value


@pytest.mark.parametrize(
    ("serving", "numbers"),
    [
        ({"engine": "vllm", "kv_cache_dtype": "fp8", "max_model_len": 4096}, ["2 × 32 × 8 × 128 × 1"]),
        (
            {"engine": "llama.cpp", "kv_cache_dtype": "q8_0"},
            [
                "1 × 131,072 × (1,088 + 1,088)",
                "32 × 285,212,672",
            ],  # a row of 1,024 elements in blocks of 32 is 1,088 bytes
        ),
    ],
    ids=["fp8 under vllm", "q8_0 under llama.cpp"],
)
def test_a_smaller_cache_type_shows_in_the_numbers(serving, numbers):
    card = CASES["vllm 0.19.0 llama 8b on h100"] | {"serving": serving}
    told = explained(builtin(), msgspec.convert(card, SizingCard))
    lines = {s.numbers for d in told.derivations if d.component == "kv_cache" for s in d.steps}

    assert set(numbers) <= lines


def test_plain_weights_are_parameters_times_their_width(llama):
    assert "8,030,261,248 × 2" == llama["weights"].steps[-1].numbers


def test_inputs_carry_the_words_and_units_of_the_law(llama):
    inputs = {entry.name: entry for entry in llama["logits"].inputs}

    assert ("128,256", "elements") == (inputs["vocab_size"].value, inputs["vocab_size"].unit)
    assert "Vocabulary" in inputs["vocab_size"].meaning


def test_lines_are_mathml_of_nothing_but_mathml(llama):
    for derivation in llama.values():
        for step in derivation.steps:
            assert {element.tag for element in ET.fromstring(step.mathml).iter()} <= MARKUP


def test_most_of_what_is_counted_is_shown_to_the_byte():
    shown = total = 0
    for name in CASES:
        for derivation in explained(builtin(), asked(name)).derivations:
            total += derivation.expected_bytes
            shown += derivation.expected_bytes * derivation.exact

    assert shown > 0.8 * total


def test_what_was_asked_before_changes_no_derivation():
    names = ("vllm llama 70b tp4", "trl lora llama 8b", "llama.cpp q4_k_m")
    script = (
        "import json, msgspec, sys; from tonnage.explain import explained; from tonnage.library import builtin; "
        "from tonnage.spec.card import SizingCard; cards = json.load(sys.stdin); "
        "print([msgspec.json.encode(explained(builtin(), msgspec.convert(c, SizingCard)).derivations) for c in cards])"
    )
    cards = [CASES[name] for name in names]
    for card in cards:
        estimate(card)
    here = [msgspec.json.encode(explained(builtin(), asked(name)).derivations) for name in names]

    fresh = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(cards), capture_output=True, text=True, check=True
    )

    assert f"{here}\n" == fresh.stdout


def test_cards_drawn_by_lot_are_explained_without_another_figure():
    drawn = [card for kind in drawing.models().items() for _, card in drawing.cards(*kind)]
    told = exact = 0
    for card in drawn[::7]:
        try:
            plain = estimate(card)
        except SizingError:
            continue
        answer = explained(builtin(), msgspec.convert(card, SizingCard))
        assert plain == msgspec.structs.replace(answer, derivations=msgspec.UNSET)
        for derivation in answer.derivations:
            told += 1
            exact += derivation.exact
            assert not derivation.exact or derivation.steps[-1].value == derivation.expected_bytes

    assert exact > told // 2
