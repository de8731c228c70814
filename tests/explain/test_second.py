"""The second instance of the estimate: same answers, laws that are noted, and a first one that knows nothing of it."""

import msgspec
from tests.golden.predictions import cases

from tonnage import laws
from tonnage.catalog import resolve
from tonnage.estimate import estimate
from tonnage.explain.second import estimated, law_functions, opened
from tonnage.explain.traced import Applied, Traced
from tonnage.laws import allocator, kv_cache
from tonnage.library import builtin
from tonnage.spec.card import SizingCard


def workload(name):
    return resolve(builtin(), msgspec.convert(cases()[name], SizingCard))


def sizes(answer):
    return [item.bytes.expected for gpu in answer.gpus for phase in gpu.phases for item in phase.items]


def test_its_sizes_are_traced_and_equal_to_those_of_the_first():
    first, second = (make(workload("vllm llama 70b tp4")) for make in (estimate, estimated))

    assert sizes(first) == sizes(second)
    assert any(isinstance(size, Traced) for size in sizes(second))


def test_the_first_instance_never_sees_a_traced_number():
    estimated(workload("trl lora llama 8b"))

    assert {int} == set(map(type, sizes(estimate(workload("trl lora llama 8b")))))
    assert int is type(kv_cache.full_attention(num_key_value_heads=8, key_bytes=256, value_bytes=256))


def test_every_law_is_known_by_its_name():
    known = law_functions()

    assert kv_cache.full_attention is known["laws.kv_cache.full_attention"]
    assert all(name.startswith("laws.") for name in known)
    assert "tonnage.laws" == laws.__name__


def test_a_law_that_walks_through_a_table_is_a_sum_of_its_entries():
    table = ((3 * 2**20, 2), (512, 4))
    inside = opened(Applied("laws.allocator.allocated", {"tensors": table, "warm": 0}, 0))

    assert inside == allocator.allocated(tensors=table)
    assert isinstance(inside, Traced)
