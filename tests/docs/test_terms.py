"""docs/terms.md and the cards speak the same words."""

import re

import msgspec
import pytest
from msgspec.inspect import multi_type_info

from tonnage.api.near_names import near
from tonnage.spec import card
from tonnage.spec.fit import FitRequest, OfferScope, Requirements

CARD = [
    v for v in vars(card).values() if isinstance(v, type) and issubclass(v, msgspec.Struct) and v is not msgspec.Struct
]


def fields(structs):
    return {field.encode_name for info in multi_type_info(structs) for field in info.fields}


@pytest.fixture(scope="module")
def page(repository):
    text = (repository / "docs" / "terms.md").read_text()
    return dict(part.split("\n", 1) for part in text.split("\n## ")[1:])


def documented(text):
    return set(re.findall(r"^\| `([a-z0-9_]+)` \|", text, re.MULTILINE))


def test_every_field_of_the_card_is_a_term(page):
    assert set() == fields(CARD) - documented(page["Fields of the card"])


def test_every_term_of_the_card_is_a_field(page):
    assert set() == documented(page["Fields of the card"]) - fields(CARD)


def test_the_terms_of_the_order_are_its_fields(page):
    ours = fields([FitRequest, OfferScope, Requirements]) - fields(CARD)

    assert ours == documented(page["Fields of the order"])


def test_every_amount_of_the_card_has_its_unit(page):
    rows = [line.split(" | ") for line in page["Fields of the card"].splitlines() if line.startswith("| `")]
    unit = {row[0].strip("| `"): row[1].strip() for row in rows}

    for name, given in unit.items():
        for ending, expected in {"_bytes": "bytes", "_tokens": "tokens", "_fraction": "fraction"}.items():
            if name.endswith(ending):
                assert (name, expected) == (name, given)


def test_the_other_names_of_a_term_lead_to_it_when_somebody_writes_them(page):
    rows = [line.strip("|").split(" | ") for line in page["Fields of the card"].splitlines() if line.startswith("| `")]
    written = [(row[0].strip(" `"), name) for row in rows for name in re.findall(r"`([^`]+)`", row[-1])]

    assert [] == [
        (field, name) for field, name in written if field not in near(name, [field]) and near(name, fields(CARD)) == []
    ]
