"""Logits an evaluation keeps."""

from tonnage.laws import evaluation


def test_all_batches_are_kept_unless_the_host_takes_them_earlier():
    known = {"per_device_batch_size": 8, "ranks": 2}

    assert 7 == evaluation.batches(samples=100, accumulation_steps=0, **known)
    assert 5 == evaluation.batches(samples=100, accumulation_steps=5, **known)
    assert 7 == evaluation.batches(samples=100, accumulation_steps=50, **known)


def test_of_an_evaluation_of_unknown_length_one_batch_is_sure():
    assert 1 == evaluation.batches(samples=0, per_device_batch_size=8, ranks=1, accumulation_steps=0)


def test_the_first_batch_finds_nothing_kept_and_the_third_the_sum_of_two_and_the_second():
    assert [0, 10, 30, 40] == [evaluation.kept_before(batch_bytes=10, batches=n) for n in (1, 2, 3, 4)]


def test_joining_takes_what_is_kept_twice():
    assert [10, 40, 60] == [evaluation.joining(batch_bytes=10, batches=n) for n in (1, 2, 3)]
