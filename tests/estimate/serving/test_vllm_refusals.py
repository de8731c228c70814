"""vLLM's own reasons, on either side of every border; facts are given, not computed."""

from types import SimpleNamespace

import pytest
from stock import BF16

from tonnage.estimate.serving import vllm_findings as refusals
from tonnage.spec.report import Amount, exactly

TOTAL = 1000
ROOMY = exactly(500)


def rank(stage=0, *, weights=100, pool=ROOMY):
    return SimpleNamespace(
        stage=stage,
        weights=exactly(weights),
        buffers=10,
        lora=7,
        draft=5,
        peak=SimpleNamespace(total=50),
        pool=pool,
        outside=SimpleNamespace(
            framework=exactly(20), communication=exactly(3), context=Amount(30, 40, 50), communicator=Amount(0, 5, 10)
        ),
        graphs=SimpleNamespace(estimate=exactly(11)),
    )


NEEDED = 100 + 10 + 7 + 5 + 50 + 20 + 3 + 11
"""Of a rank without blocks. [bytes]"""


def chosen(**more):
    release = {"refuses_few_states": True, "since": "0.9", "quantizes_compressed_cache": False}
    core = SimpleNamespace(context_in_budget=False)
    usual = {
        "fraction": 0.9, "max_model_len": 4096, "max_num_seqs": 256, "max_num_batched_tokens": 8192, "legacy": False,
        "eager": False, "rocm": False, "pool_bytes": None, "images": False, "videos": False, "kv_formats": (BF16, BF16),
        "release": SimpleNamespace(**release | more.pop("release", {})), "core": core,
    }  # fmt: skip
    return SimpleNamespace(**usual | more)


def facts(**more):
    usual = {
        "settings": chosen(), "ranks": (rank(),), "total": exactly(TOTAL), "blocks": Amount(40, 50, 60), "request_blocks": 10,
        "needed_blocks": 20, "demand": SimpleNamespace(stated=True, requests=3, tokens=100), "chosen_speculates": False,
        "layout": SimpleNamespace(block_bytes=lambda stage: 8 + stage, recurrent_groups=0),
        "workload": SimpleNamespace(model=SimpleNamespace(mtp_layers=0, vision=None), serving=None, profile_certain=True),
    }  # fmt: skip
    return SimpleNamespace(**usual | more)


def budget(**more):
    """What the budget says; the facts hold what is asked as well."""
    given = facts(max_model_len=chosen().max_model_len, **more)
    return refusals._budget(given, given)


def statuses(found):
    return [f.status for f in found]


# ---- the budget ----


@pytest.mark.parametrize(
    ("one", "many", "expected"),
    [
        (40, 40, []),
        (41, 20, ["needs_confirmation"]),
        (60, 20, ["needs_confirmation"]),
        (61, 20, ["excluded"]),
        (10, 41, ["needs_confirmation"]),
        (10, 61, ["excluded"]),
        (41, 41, ["needs_confirmation"]),
        (41, 61, ["needs_confirmation", "excluded"]),
    ],
)
def test_one_request_and_all_of_them_are_held_against_the_blocks(one, many, expected):
    assert expected == statuses(budget(request_blocks=one, needed_blocks=many))


def test_traffic_that_nobody_stated_is_no_reason():
    quiet = SimpleNamespace(stated=False, requests=3, tokens=100)

    assert [] == budget(needed_blocks=99, demand=quiet)


def test_without_blocks_there_is_nothing_to_hold_against():
    assert [] == budget(blocks=None, request_blocks=99)


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        (Amount(-20, -10, 0), ["excluded"]),
        (Amount(-20, -10, 1), ["needs_confirmation"]),
        (Amount(0, 1, 2), ["needs_confirmation"]),
        (Amount(1, 1, 2), []),
    ],
)
def test_a_pool_below_nothing_is_refused_and_one_that_may_be_is_to_be_confirmed(pool, expected):
    assert expected == statuses(budget(ranks=(rank(pool=pool),)))


def test_a_pool_that_may_be_empty_adds_nothing_to_a_reason_that_stands():
    found = budget(ranks=(rank(pool=Amount(-1, 1, 2)),), request_blocks=41)

    assert ["needs_confirmation"] == statuses(found)
    assert "one request of max_model_len 4096" in found[0].reason


def test_the_tightest_rank_decides():
    roomy, tight = rank(pool=exactly(500)), rank(1, pool=exactly(-5))

    assert ["excluded"] == statuses(budget(ranks=(roomy, tight)))
    assert ["excluded"] == statuses(budget(ranks=(tight, roomy)))


def test_what_is_used_is_named():
    used = 100 + 10 + 7 + 5 + 50

    assert f"against {used} B of weights" in refusals._no_pool(facts(), rank()).reason
    assert (
        "0.9 of 1,000 B" in refusals._no_pool(facts(), rank()).reason
        or "0.9 of 1000 B" in refusals._no_pool(facts(), rank()).reason
    )


def test_blocks_are_priced_at_the_largest_stage():
    two = facts(ranks=(rank(0), rank(4)))
    (found,) = refusals._against_blocks(two, 50, "this", "that")

    assert "this needs 600 B of cache" in found.reason
    assert "480 B to 720 B" in found.reason


# ---- the fraction ----


@pytest.mark.parametrize("blocks", [0, 1, 60])
def test_the_smallest_fraction_holds_everything_of_the_fullest_rank(blocks):
    expected = -(-100 * (NEEDED + blocks * 8) // TOTAL) / 100

    assert expected == refusals.smallest_fraction(facts(), blocks)
    assert -(-100 * (NEEDED + 100 + blocks * 8) // TOTAL) / 100 == refusals.smallest_fraction(
        facts(ranks=(rank(), rank(weights=200))), blocks
    )


@pytest.mark.parametrize(
    ("fraction", "words"),
    [(1.01, "no gpu_memory_utilization is enough"), (1.0, "would take"), (0.91, "would take"), (0.9, "would need")],
)
def test_the_remedy_is_a_fraction_that_can_be_given(monkeypatch, fraction, words):
    monkeypatch.setattr(refusals, "smallest_fraction", lambda *_: fraction)

    assert words in refusals._remedy(facts(), 1)


# ---- settings ----


@pytest.mark.parametrize(
    ("tokens", "seqs", "legacy", "expected"),
    [(256, 256, False, []), (255, 256, False, ["excluded"]), (255, 256, True, [])],
)
def test_a_batch_holds_a_token_of_every_sequence(tokens, seqs, legacy, expected):
    settings = chosen(max_num_batched_tokens=tokens, max_num_seqs=seqs, legacy=legacy)

    assert expected == statuses(refusals._batch(settings))


@pytest.mark.parametrize(("requests", "expected"), [(256, []), (257, ["needs_confirmation"])])
def test_more_requests_than_sequences_wait(requests, expected):
    demand = SimpleNamespace(stated=True, requests=requests, tokens=1)

    assert expected == statuses(refusals._waiting(chosen(), demand))


@pytest.mark.parametrize(
    ("more", "found"),
    [({}, True), ({"rocm": True}, False), ({"release": {"quantizes_compressed_cache": True}}, False)],
)
def test_compressed_layers_read_an_fp8_cache_only(monkeypatch, more, found):
    monkeypatch.setattr(refusals, "is_compressed", lambda _: True)

    assert found is bool(refusals._compressed_cache(facts(settings=chosen(**more))))
    monkeypatch.setattr(refusals, "is_compressed", lambda _: False)
    assert not refusals._compressed_cache(facts(settings=chosen(**more)))


# ---- images longer than a request ----


@pytest.mark.parametrize(
    ("tokens", "v0", "images", "vision", "found"),
    [
        (4096, True, True, True, False),
        (4097, True, True, True, True),
        (4097, False, True, True, False),
        (None, False, True, True, True),
        (4097, True, False, True, False),
        (4097, True, True, False, False),
    ],
)
def test_an_image_longer_than_a_request_is_unsettled_while_there_are_two_engines(
    monkeypatch, tokens, v0, images, vision, found
):
    monkeypatch.setattr(refusals, "has_v0", lambda _: v0)
    item = None if tokens is None else SimpleNamespace(tokens=tokens)
    monkeypatch.setattr(refusals, "largest_item", lambda *_: item)
    workload = SimpleNamespace(model=SimpleNamespace(vision=object() if vision else None))

    answer = refusals._long_items(facts(settings=chosen(images=images), workload=workload))
    assert found is bool(answer)
    if found:
        assert ("becomes 4097 tokens" in answer[0].reason) is (tokens is not None)


# ---- states ----


@pytest.mark.parametrize(
    ("slots", "expected"), [(40, []), (41, ["needs_confirmation"]), (60, ["needs_confirmation"]), (61, ["excluded"])]
)
def test_every_request_needs_a_state(slots, expected):
    layout = SimpleNamespace(recurrent_groups=1)

    assert expected == statuses(refusals._slots(facts(layout=layout, settings=chosen(max_num_seqs=slots))))


@pytest.mark.parametrize(
    "more",
    [
        {"layout": SimpleNamespace(recurrent_groups=0)},
        {"blocks": None},
        {"settings": chosen(eager=True)},
        {"settings": chosen(release={"refuses_few_states": False})},
    ],
)
def test_states_are_no_reason_without_groups_blocks_graphs_or_the_check(more):
    assert [] == refusals._slots(facts(**{"layout": SimpleNamespace(recurrent_groups=1)} | more))


@pytest.mark.parametrize(
    ("slots", "layers", "speculates", "found"),
    [(31, 1, False, True), (30, 1, False, False), (31, 0, False, False), (31, 1, True, False)],
)
def test_a_prediction_layer_that_recipes_switch_on_leaves_fewer_states(slots, layers, speculates, found):
    workload = SimpleNamespace(model=SimpleNamespace(mtp_layers=layers))
    have = facts(workload=workload, chosen_speculates=speculates)

    assert found is bool(refusals._slots_when_predicting(have, slots, 40))


# ---- free memory at the start ----


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [(0.94, []), (0.95, ["needs_confirmation"]), (0.97, ["needs_confirmation"]), (0.98, ["excluded"])],
)
def test_the_engine_wants_its_fraction_free_at_the_start(fraction, expected):
    assert expected == statuses(refusals._free_at_start(facts(settings=chosen(fraction=fraction))))


@pytest.mark.parametrize(
    "more",
    [
        {"total": None},
        {"settings": chosen(fraction=0.99, pool_bytes=1)},
        {"settings": chosen(fraction=0.99, legacy=True)},
        {"settings": chosen(fraction=0.99, core=SimpleNamespace(context_in_budget=True))},
    ],
)
def test_nothing_is_asked_at_the_start_where_the_budget_is_another(more):
    assert [] == refusals._free_at_start(facts(**{"settings": chosen(fraction=0.99)} | more))


# ---- what no law covers ----


def workload(*, known=True, method=None):
    speculative = None if method is None else SimpleNamespace(method=method)
    return SimpleNamespace(model=SimpleNamespace(known=known), serving=SimpleNamespace(speculative=speculative))


@pytest.mark.parametrize(
    ("asked", "more", "drafted", "expected"),
    [
        (workload(), {}, True, []),
        (workload(known=False), {}, True, ["activations and cache"]),
        (workload(), {"rocm": True}, True, ["activation and non-torch"]),
        (workload(method="NGRAM"), {}, False, []),
        (workload(method="eagle"), {}, True, ["activations and graphs"]),
        (workload(method="eagle"), {}, False, ["activations and graphs", "weights and cache of the eagle"]),
        (workload(), {"images": True}, True, ["vision encoder"]),
    ],
)
def test_what_no_law_covers_is_said(monkeypatch, asked, more, drafted, expected):
    monkeypatch.setattr(refusals, "largest_item", lambda *_: None)
    found = refusals.unknowns(asked, chosen(**more), drafted=drafted)

    assert [True] * len(expected) == [f.startswith(e) for f, e in zip(found, expected, strict=True)]


def test_an_image_of_known_size_is_covered(monkeypatch):
    monkeypatch.setattr(refusals, "largest_item", lambda *_: object())

    assert () == refusals.unknowns(workload(), chosen(images=True), drafted=True)
