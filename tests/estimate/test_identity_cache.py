"""Remembering by identity: same objects answer from memory, equal but distinct ones do not collide."""

from tonnage.estimate.identity_cache import remembered


def counting(maximum=8):
    calls = []

    @remembered(maximum)
    def joined(*args, **kwargs):
        calls.append((args, kwargs))
        return len(calls)

    return joined, calls


def test_the_same_objects_are_computed_once():
    function, calls = counting()
    thing = object()

    assert [1, 1, 1] == [function(thing, size=2) for _ in range(3)]
    assert 1 == len(calls)


def test_equal_objects_with_identities_of_their_own_are_computed_apart():
    function, _ = counting()

    assert [1, 2] == [function([1]), function([1])]


def test_numbers_and_texts_in_positions_are_keyed_by_value():
    function, calls = counting()
    for _ in range(3):
        function(int("1000"), "".join(["long", " text"]))

    assert 1 == len(calls)


def test_keywords_of_other_names_do_not_collide():
    function, _ = counting()

    assert [1, 2] == [function(rows=2), function(columns=2)]


def test_keywords_without_a_hash_are_keyed_by_identity():
    function, calls = counting()
    formats = {"bf16": 2}
    for _ in range(3):
        function(formats=formats)

    assert 1 == len(calls)


def test_a_full_memory_is_forgotten_and_still_right():
    function, _ = counting(maximum=2)
    kept = [object() for _ in range(5)]

    assert [1, 2, 3, 4, 5] == [function(thing) for thing in kept]
    assert 5 == function(kept[-1])


def test_an_argument_stays_alive_so_that_its_identity_is_not_reused():
    function, _ = counting(maximum=10_000)

    assert list(range(1, 1001)) == [function(object()) for _ in range(1000)]
