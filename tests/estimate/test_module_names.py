"""Lists of modules: what an entry means, and that no list of a stranger's takes long."""

import time

import pytest

from tonnage.errors import ContradictoryWorkload
from tonnage.estimate.module_names import MOST_NAMES, ModuleNames, module_paths, shape_of

GATE = module_paths("mlp.gate.weight", 3)
Q = module_paths("self_attn.q_proj.weight", 11)


@pytest.mark.parametrize(
    ("name", "matches"),
    [
        ("gate", True),
        (".gate", True),
        ("mlp", True),
        ("model.layers.3.mlp.gate", True),
        ("layers.3", True),
        ("layers.30", False),
        ("ate", False),
        ("re:.*mlp.gate$", True),
        (r"re:model\.layers\.(2|3)\..*", True),
        (r"re:.*\.(4|5)\..*", False),
        ("re:gate", False),
        ("re:.*?gat[e]+?", True),
        (r"re:^(?!.*\.mlp\.).*$", False),
        (r"re:^(?!.*\.experts\.).*$", True),
        ("re:(", False),
        ("*.gate", True),
        ("model.layers.?.mlp*", True),
        ("*.mlp", False),
    ],
)
@pytest.mark.parametrize("others", [0, 20], ids=["alone", "in a long list"])
def test_an_entry_means_what_the_quantizers_make_of_it(name: str, matches: bool, others: int) -> None:
    names = ModuleNames([name, *(f"other{n}" for n in range(others))])

    assert matches == names.match(GATE)


@pytest.mark.parametrize(
    "text", ["(a+)+$", "([a-z]*)*", "(.*)*(.*)*Z", "(?:a|a){2,}", r"(.)\1", ".*a.*a.*a.*a.*b", "(?i)a", "(?P<n>a)"]
)
def test_what_could_take_exponential_time_is_not_run(text: str) -> None:
    assert shape_of(text) is None
    assert not ModuleNames([f"re:{text}"]).match(GATE)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (r".*mlp\.gate$", ("mlp.gate", 1)),
        (".*lm_head.*", ("lm_head", 1)),
        (r"model\.layers\.(0|1)\.", ("model.layers.", 0)),
        ("ab*cd", ("cd", 1)),
        ("ab?c", ("a", 0)),
        ("ab|cd", ("", 0)),
        ("x[ab]{1,9}yz", ("yz", 1)),
    ],
)
def test_what_a_regular_expression_needs_is_known(text: str, shape: tuple[str, int]) -> None:
    assert shape == shape_of(text)


@pytest.mark.parametrize("text", [".*?.*?.*?[^a-z0-9._]", ".*.*.*.*[^a-z0-9._]"])
def test_regular_expressions_that_would_take_long_are_refused_before_they_have(text: str) -> None:
    names, started = ModuleNames([f"re:{text}"]), time.process_time()

    with pytest.raises(ContradictoryWorkload, match="take too long"):
        any(names.match(module_paths("self_attn.q_proj.weight", layer)) for layer in range(10_000))

    assert time.process_time() - started < 6


def test_a_list_of_many_names_is_looked_up_not_tried() -> None:
    names, started = ModuleNames(f"model.layers.{n}.foo" for n in range(MOST_NAMES)), time.process_time()

    assert not any(names.match(module_paths("self_attn.q_proj.weight", layer)) for layer in range(500))
    assert time.process_time() - started < 2


def test_a_list_longer_than_any_is_refused() -> None:
    with pytest.raises(ContradictoryWorkload, match="more than"):
        ModuleNames(f"m{n}" for n in range(MOST_NAMES + 1))


def test_an_empty_list_matches_nothing() -> None:
    assert not ModuleNames([])
    assert not ModuleNames([]).match(Q)
