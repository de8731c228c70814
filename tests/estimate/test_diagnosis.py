"""A failure is traced to the items of its phase, and every remedy is priced by a new estimate."""

import msgspec
import pytest
import toy_physics
from msgspec.structs import replace
from toy_physics import MODEL, item, made

from tonnage.errors import ContradictoryWorkload
from tonnage.estimate.diagnosis import (
    _compared,
    _from_text,
    _needed,
    _sentences,
    _size,
    diagnose,
    most_likely,
    remedies,
)
from tonnage.estimate.remedies import Scene, ladder
from tonnage.spec.card import SizingCard
from tonnage.spec.report import Finding
from tonnage.units import GiB


def card(**fields):
    return msgspec.convert({"model": {"parameters": 7}} | fields, SizingCard)


TRAINING = card(training={"optimizer": "adamw", "micro_batch_size": 8})
SERVING = card(serving={"engine": "vllm", "max_model_len": 65_536})


def diagnosed(question, phase, numbers=None, reestimate=toy_physics.estimate):
    return diagnose(
        card=question,
        model=MODEL,
        estimate=toy_physics.estimate(question),
        phase=phase,
        numbers=numbers or {},
        unread=(),
        reestimate=reestimate,
    )


def test_items_of_the_phase_stand_largest_first():
    assert ["weights", "activations", "optimizer_states"] == [
        i.component for i in diagnosed(TRAINING, "backward").items
    ]


def test_a_remedy_says_what_it_saves_and_whether_it_is_enough():
    by_field = {r.field: r for r in diagnosed(TRAINING, "backward").remedies}
    batch, checkpointing = by_field["/training/micro_batch_size"], by_field["/training/gradient_checkpointing"]

    assert (8, 2, 6 * GiB, "met") == (batch.from_, batch.to, batch.saves_bytes, batch.verdict)
    assert (6 * GiB, "met") == (checkpointing.saves_bytes, checkpointing.verdict)
    assert by_field["/training/optimizer"].saves_bytes == 3 * GiB
    assert by_field["/training/optimizer"].verdict == "excluded"


@pytest.mark.parametrize(
    ("question", "phase", "first"),
    [
        (TRAINING, "backward", "/training/micro_batch_size"),
        (TRAINING, "optimizer_step", "/training/optimizer"),
        (SERVING, "kv_allocation", "/serving/max_model_len"),
        (SERVING, "load", "/weights/format"),
    ],
)
def test_the_phase_decides_what_comes_first(question, phase, first):
    assert first == diagnosed(question, phase).remedies[0].field


def test_the_longest_context_that_is_met_is_looked_for():
    remedy = diagnosed(SERVING, "kv_allocation").remedies[0]

    assert 49_152 - 1_024 <= remedy.to <= 49_152
    assert remedy.verdict == "met"


def test_the_whole_ladder_follows_the_rungs_of_the_phase():
    scene = Scene(TRAINING, toy_physics.estimate(TRAINING), MODEL)
    fields = [r.field for r in ladder(scene, "optimizer_step")]

    assert fields.index("/training/optimizer") < fields.index("/training/micro_batch_size")
    assert {"/training/gradient_checkpointing", "/training/method", "/training/cross_entropy"} <= set(fields)


def test_every_rung_names_a_field_of_the_card():
    scene = Scene(SERVING, toy_physics.estimate(SERVING), MODEL)
    for phase in ("load", "profile", "kv_allocation", "cuda_graph", "prefill", "decode"):
        for rung in ladder(scene, phase):
            *parents, name = rung.field.strip("/").split("/")
            node = SERVING
            for parent in parents:
                node = getattr(node, parent)
            assert hasattr(node, name)


def test_a_change_that_contradicts_the_card_is_no_remedy():
    def refuses(_):
        raise ContradictoryWorkload("no")

    assert diagnosed(TRAINING, "backward", reestimate=refuses).remedies == ()


def test_saving_less_than_was_missing_is_not_established():
    numbers = {"requested_bytes": 9 * GiB, "free_bytes": 1 * GiB}
    by_field = {r.field: r for r in diagnosed(TRAINING, "backward", numbers).remedies}

    assert by_field["/training/gradient_checkpointing"].verdict == "needs_confirmation"


def test_the_explanation_compares_the_text_with_the_estimate():
    allowed = diagnosed(TRAINING, "backward", {"allocated_bytes": 20 * GiB, "requested_bytes": GiB}).explanation
    beyond = diagnosed(TRAINING, "backward", {"allocated_bytes": 30 * GiB, "requested_bytes": GiB}).explanation

    assert "the estimate allows for it" in allowed
    assert "above our 26.00 GiB; weights (derived) most likely explains it" in beyond


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"other_process_bytes": [GiB, GiB]}, "Other processes hold 2.00 GiB"),
        ({"reserved_unallocated_bytes": 3 * GiB, "requested_bytes": GiB}, "expandable_segments"),
        ({"claim_bytes": 7 * GiB, "free_bytes": 6 * GiB}, "no shortage of the workload"),
        ({"mamba_blocks": 713}, "713 running requests"),
    ],
)
def test_what_the_text_gives_away_is_said(numbers, words):
    assert words in diagnosed(TRAINING, "backward", numbers).explanation


def test_a_phase_without_a_law_shows_the_peak_and_says_so():
    found = diagnosed(TRAINING, "merge")

    assert "No law has a phase merge" in found.explanation
    assert found.items


def test_the_item_with_most_room_explains_a_difference():
    items = (item("weights", 14 * GiB, basis="exact"), item("activations", 2 * GiB, basis="calibrated", spread=GiB))

    assert most_likely(items, 3 * GiB).component == "activations"
    assert most_likely((), 3 * GiB) is None


def test_remedies_stop_at_the_most_that_are_asked_for():
    scene = Scene(TRAINING, made([item("weights", 30 * GiB)]), MODEL)

    assert 2 == len(remedies(scene, "backward", toy_physics.estimate, most=2))


def test_the_shown_phase_and_its_three_largest_items_are_named():
    sizes = (("a", 1), ("b", 5), ("c", 3), ("d", 4))
    found = _sentences(made([item(n, g * GiB) for n, g in sizes]), "backward", *_shown(sizes), {})

    assert found == ["Of 13.00 GiB in backward the largest are b 5.00 GiB, d 4.00 GiB, c 3.00 GiB."]


def _shown(sizes):
    items = tuple(sorted((item(n, g * GiB) for n, g in sizes), key=lambda i: -i.bytes.expected))
    return made([item(n, g * GiB) for n, g in sizes]).phases[0], items


def test_a_phase_without_items_says_nothing_of_them():
    estimate = made([])

    assert _sentences(estimate, "backward", estimate.phases[0], (), {}) == []


def test_two_reasons_of_an_exclusion_are_said():
    estimate = made([item("weights", 30 * GiB)])
    reasons = tuple(
        Finding(status=status, reason=words)
        for words, status in (("a", "met"), ("b", "excluded"), ("c", "excluded"), ("d", "excluded"))
    )

    assert _sentences(replace(estimate, reasons=reasons), "backward", *_shown([("weights", 30)]), {})[1:] == [
        "b.",
        "c.",
    ]
    assert (
        _sentences(replace(estimate, verdict="met", reasons=reasons), "backward", *_shown([("weights", 30)]), {})[1:]
        == []
    )


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"allocated_bytes": 7, "requested_bytes": 3}, 10),
        ({"allocated_bytes": 7}, None),
        ({"requested_bytes": 3}, None),
    ],
)
def test_what_a_text_shows_was_needed_is_what_was_there_and_what_was_asked_for(numbers, expected):
    assert _needed(numbers) == expected


def test_the_estimate_allows_for_what_was_needed_up_to_its_end():
    shown = made([item("weights", 10 * GiB)]).phases[0]

    assert "allows for it" in _compared(shown, 10 * GiB)
    assert "above our 10.00 GiB" in _compared(shown, 10 * GiB + 1)


def test_only_what_the_allocator_counts_can_explain_a_lack_of_tensors():
    shown = made([item("context", 10 * GiB, counter="device"), item("weights", GiB, basis="exact")]).phases[0]

    assert _compared(shown, 2 * GiB).endswith("; weights (exact) most likely explains it.")


def test_the_lack_is_explained_by_the_upper_side_of_the_bands():
    low, high = item("low", 8 * GiB, basis="exact"), item("high", 8 * GiB, basis="exact")
    low = replace(low, bytes=replace(low.bytes, low=0))
    high = replace(high, bytes=replace(high.bytes, high=9 * GiB))

    assert "; high (exact)" in _compared(made([low, high]).phases[0], 17 * GiB)


@pytest.mark.parametrize(
    ("numbers", "fragmented"),
    [
        ({"reserved_unallocated_bytes": 7, "requested_bytes": 7}, True),
        ({"reserved_unallocated_bytes": 6, "requested_bytes": 7}, False),
        ({"reserved_unallocated_bytes": 7}, False),
        ({"requested_bytes": 1}, False),
        ({}, False),
    ],
)
def test_fragmentation_is_named_when_as_much_was_idle_as_was_asked_for(numbers, fragmented):
    assert any("fragmentation" in words for words in _from_text(numbers)) is fragmented


def test_the_failing_phase_is_what_has_to_shrink_where_nothing_is_claimed():
    low, high = made([item("weights", GiB)], phase="load").phases[0], made([item("weights", 3 * GiB)]).phases[0]
    estimate = replace(made([item("weights", 9 * GiB)]), phases=(low, high))

    assert [_size(estimate, phase) for phase in ("load", "backward", "merge")] == [GiB, 3 * GiB, 9 * GiB]
    assert _size(replace(estimate, claimed_bytes=1), "load") == 9 * GiB
