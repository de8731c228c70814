"""An account is remembered by everything it depends on, and by nothing else."""

from msgspec.structs import replace

from tonnage.catalog import load_catalog, resolve
from tonnage.estimate.accounts import account_of, key_of
from tonnage.spec.card import Failure, Measurement, Placement, SizingCard, Training, Vllm
from tonnage.spec.report import Assumption, Finding
from tonnage.spec.workload import Workload

CATALOG = load_catalog()
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
SERVING = resolve(
    CATALOG,
    SizingCard(model=MODEL, serving=Vllm(max_model_len=8192, kv_cache_dtype="fp8"), placement=Placement(gpu="l40s")),
)
CHANGED = {
    "model": replace(SERVING.model),
    "weight_format": CATALOG.formats.get("fp8-per-tensor"),
    "weight_bytes": 1,
    "serving": Vllm(max_model_len=8193, kv_cache_dtype="fp8"),
    "training": Training(),
    "profile": replace(SERVING.profile),
    "profile_certain": False,
    "kv_formats": None,
    "optimizer": CATALOG.optimizers.get("adamw"),
    "draft": SERVING.model,
    "placement": Placement(gpu="l40s", tensor_parallel_size=2),
    "gpu": replace(SERVING.gpu),
    "reserve_bytes": 1,
    "reserve_fraction": 0.1,
    "formats": {},
}
BESIDE = {
    "namesakes",
    "card",
    "measurements",
    "failure",
    "assumptions",
    "findings",
    "unknowns",
    "catalog_version",
    "tool",
}
"""Fields that are added to an account or read by the answer, never by an accounting (but for phases that they name)."""


def test_every_field_of_a_workload_is_in_the_key_or_known_to_stand_beside_it():
    assert set(Workload.__struct_fields__) == CHANGED.keys() | BESIDE


def test_a_change_of_any_field_in_the_key_changes_the_key():
    kept = {key_of(SERVING)}
    same = [f for f, value in CHANGED.items() if key_of(replace(SERVING, **{f: value})) in kept]

    assert [] == same


def test_phases_that_a_training_card_names_are_in_the_key():
    job = resolve(CATALOG, SizingCard(model=MODEL, training=Training()))
    measured = Measurement(counter="allocated", peak_bytes=10**9, phase="evaluation")
    named = [replace(job, failure=Failure(phase="export")), replace(job, measurements=(measured,))]

    assert len({key_of(job), *map(key_of, named)}) == 3


def test_an_equal_card_is_answered_from_memory():
    first = resolve(CATALOG, SERVING.card)
    again = resolve(CATALOG, replace(SERVING.card, serving=replace(SERVING.card.serving)))

    assert account_of(first) is account_of(again)


def test_findings_of_resolving_are_added_and_not_kept():
    finding = Finding(status="needs_confirmation", reason="recalled", field="/model")
    found = account_of(replace(SERVING, findings=(finding,), assumptions=(Assumption("a", 1, "b"),)))

    assert finding in found.findings
    assert finding not in account_of(SERVING).findings
