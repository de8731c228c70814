"""A loose GPU name in a request lets every board of that name take part, and the answer says so."""

import pytest
from fit_requests import catalog, offered, request, sku

from tonnage.errors import UnknownName
from tonnage.fit import fit

A100 = ["a100-40-pcie", "a100-40-sxm", "a100-80-pcie", "a100-80-sxm"]


def packages(*gpus):
    return [sku(id=f"on-{gpu}", gpu=gpu) for gpu in gpus]


def asked(**fields):
    return fit(catalog(), request(**fields))


def judged(found):
    return sorted({c.gpu for c in found.candidates} | {g.example.gpu for g in found.excluded})


@pytest.mark.parametrize("place", ["offer", "wish"])
def test_packages_of_every_board_of_a_loose_name_are_judged(place):
    offer = offered(*packages(*A100, "h100-sxm"))
    wish = {"placement": {"gpu": "A100"}, "offer": offer} if place == "wish" else {"offer": offer | {"gpus": ["A100"]}}
    found = asked(**wish)

    assert found.considered.skus == len(A100)
    (told,) = [a for a in found.assumptions if a.field in {"offer.gpus", "placement.gpu"}]
    assert A100 == told.value


def test_the_name_of_one_board_lets_in_that_board_alone():
    found = asked(offer=offered(*packages(*A100)) | {"gpus": ["a100-40-sxm"]})

    assert ["a100-40-sxm"] == judged(found)
    assert [] == [a for a in found.assumptions if a.field == "offer.gpus"]


def test_a_name_narrower_than_the_family_lets_in_what_it_names():
    found = asked(offer=offered(*packages(*A100)) | {"gpus": ["A100 40GB"]})

    assert ["a100-40-pcie", "a100-40-sxm"] == judged(found)


def test_todays_run_on_a_loose_name_says_which_board_is_taken():
    found = asked(offer=offered(*packages("l40s")), current={"gpu": "V100"})
    (told,) = [a for a in found.assumptions if a.field == "current.gpu"]

    assert "v100-16" == told.value
    assert "v100-32" in told.why


def test_a_name_of_nothing_is_refused_where_it_stands():
    with pytest.raises(UnknownName) as refused:
        asked(offer=offered(*packages("l40s")) | {"gpus": ["l40s", "A1000000"]})

    assert "/offer/gpus/1" == refused.value.pointer
