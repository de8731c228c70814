"""A failure is traced to the items of its phase, and every remedy is priced by a new estimate."""

import msgspec
import pytest
import toy_physics
from toy_physics import MODEL, item, made

from tonnage.errors import ContradictoryWorkload
from tonnage.estimate.diagnosis import diagnose, most_likely, remedies
from tonnage.estimate.remedies import Scene, ladder
from tonnage.spec.card import SizingCard
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
