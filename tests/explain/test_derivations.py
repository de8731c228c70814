"""Items of an answer as formulas with the numbers put in."""

import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import msgspec
import pytest
from tests.golden import drawn as drawing
from tests.golden.predictions import cases

from tonnage.errors import SizingError
from tonnage.explain import explained
from tonnage.explain.second import law_functions
from tonnage.library import builtin, estimate
from tonnage.spec.card import SizingCard

CASES = cases()
MARKUP = {"math", "mtable", "mtr", "mtd", "mrow", "mfrac", "msup", "mi", "mn", "mo", "mtext", "mspace"}


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


def counted(text):
    """The value of a line of numbers, by a calculator that knows nothing of laws."""
    plain = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    for sign, word in SIGNS.items():
        plain = plain.replace(sign, word)
    return eval(plain, {"__builtins__": {}}, WORDS)


SIGNS = {
    "×": "*", "−": "-", "^": "**", "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")",
    "KiB": "1024", "MiB": "1048576", "GiB": "1073741824",
}  # fmt: skip
WORDS = {"ceil": math.ceil, "floor": math.floor, "min": min, "max": max, "round": round}


LONGEST = 2000
"""A line that nobody reads: a law's simulation instead of its formula. [characters]"""


def gaps(plain, told):
    """What is not shown to the byte: items without a derivation, lines whose numbers give something else."""
    known = {(d.component, d.law, d.expected_bytes, d.detail): d for d in told.derivations}
    for item in (item for gpu in plain.gpus for phase in gpu.phases for item in phase.items):
        derivation = known.get((item.component, item.law, item.bytes.expected, item.detail))
        if derivation is None or not derivation.exact:
            yield item
        elif derivation.steps[-1].value != item.bytes.expected:
            yield item, derivation.steps[-1]
    for derivation in told.derivations:
        for step in derivation.steps:
            if counted(step.numbers) != step.value or len(step.numbers) > LONGEST:
                yield step


@pytest.mark.parametrize("name", CASES)
def test_every_item_ends_in_its_bytes_and_every_line_gives_what_stands_beside_it(name):
    assert [] == list(gaps(estimate(CASES[name]), explained(builtin(), asked(name))))


@pytest.mark.parametrize("kind", drawing.models())
def test_so_does_every_item_of_cards_drawn_by_lot(kind):
    for name, card in drawing.cards(kind, drawing.models()[kind]):
        try:
            plain = estimate(card)
        except SizingError:
            continue
        told = explained(builtin(), msgspec.convert(card, SizingCard))

        assert plain == msgspec.structs.replace(told, derivations=msgspec.UNSET)
        assert [] == list(gaps(plain, told)), name


def test_weights_are_the_sum_of_the_components_of_the_model(llama):
    steps = {step.name: step for step in llama["weights"].steps}
    parts = steps["weights"].formula.split(" + ")

    assert ["mlp", "attention", "embedding", "lm head", "norm"] == parts
    assert 2 * 8_030_261_248 == sum(steps[part].value for part in parts)


def test_keys_and_values_are_counted_from_one_head_to_the_pool(llama):
    steps = {step.name: step for step in llama["kv_cache"].steps}

    assert "8 × (256 + 256)" == steps["bytes per token"].numbers
    assert "16 × 4,096" == steps["page bytes"].numbers
    assert "blocks × 32 × page bytes" == steps["kv cache"].formula


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
        ({"engine": "vllm", "kv_cache_dtype": "fp8", "max_model_len": 4096}, ["8 × (128 + 128)"]),
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


def test_inputs_carry_the_words_and_units_of_the_law(llama):
    inputs = {entry.name: entry for entry in llama["logits"].inputs}

    assert ("128,256", "elements") == (inputs["vocab_size"].value, inputs["vocab_size"].unit)
    assert "Vocabulary" in inputs["vocab_size"].meaning


def test_lines_are_mathml_of_nothing_but_mathml(llama):
    for derivation in llama.values():
        for step in derivation.steps:
            assert {element.tag for element in ET.fromstring(step.mathml).iter()} <= MARKUP


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


@pytest.mark.parametrize("name", [name for name, card in CASES.items() if "training" in card])
def test_items_of_training_name_a_law_and_not_its_topic(name):
    named = {item.law for gpu in estimate(CASES[name]).gpus for phase in gpu.phases for item in phase.items}

    assert set() == named - set(law_functions())


def test_a_constant_says_how_it_is_known_and_from_where():
    told = explained(builtin(), asked("transformers llama 8b")).derivations
    ids_and_masks = next(d for d in told if d.detail == "ids and masks")

    assert ("measured", "1,048,576") == (ids_and_masks.steps[-1].formula, ids_and_masks.steps[-1].numbers)
    assert "measured: tests/measured/serving_transformers.json" == ids_and_masks.note


def test_a_known_file_is_what_the_request_says():
    (told,) = explained(builtin(), asked("plain known file")).derivations

    assert "file bytes / ranks" in told.steps[-1].formula
    assert told.steps[-1].numbers == "⌊8,589,934,592 / 1⌋"
