"""Architecture tables are data: whatever they say must be sayable before any config is read."""

import pytest

from tonnage.architecture.expressions import names_in, parse
from tonnage.architecture.gguf_header import FILE_TYPES, gguf_tables
from tonnage.architecture.tables import complete, tables
from tonnage.catalog import load_catalog
from tonnage.errors import CatalogError

EVERY = {**tables(), **{f"gguf {name}": table for name, table in gguf_tables().items()}}


def expressions(table):
    yield from table.derive.values()
    for kind in table.kinds.values():
        yield from kind.values()
    for row in (*table.layer_tensors, *table.outside_tensors, *table.outside_more, *table.mtp_tensors):
        yield from (row.rows, row.columns, row.copies, row.when, row.bias)
    for norm in table.norms:
        if " if " in norm:
            yield norm.partition(" if ")[2]
    for part in table.parts.values():
        yield part.when


@pytest.mark.parametrize("name", EVERY)
def test_every_expression_is_one(name):
    for text in expressions(EVERY[name]):
        parse(text)


@pytest.mark.parametrize("name", EVERY)
def test_every_part_is_read_by_a_table_that_exists(name):
    assert {part.table for part in EVERY[name].parts.values()} <= set(tables())


def test_what_a_layer_reads_is_announced():
    """A field whose expression reads `layer` changes from layer to layer, so that groups must tell layers apart by it."""
    told_apart = {"mixer", "ffn"}
    for name, table in tables().items():
        reading = {field for field, text in table.derive.items() if "layer" in names_in(text)}
        parts_of_others = {n for text in table.derive.values() for n in names_in(text)}
        assert reading <= {*table.per_layer, *told_apart, *parts_of_others}, name


def test_every_file_type_is_a_format_of_the_catalogue():
    known = {record.id for record in load_catalog().formats}
    assert set(FILE_TYPES.values()) <= known


def test_every_table_has_a_family_or_is_a_part():
    parts = {part.table for table in tables().values() for part in table.parts.values()}
    bases = {"decoder", "encoder", "tower"}
    alone = [
        name for name, table in tables().items()
        if not table.family and name not in parts and name not in bases and not table.facts.get("encoder")
    ]  # fmt: skip
    assert [] == alone


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ({"a": {"like": "nobody"}}, "like = 'nobody' does not exist"),
        ({"a": {"colour": "red"}}, "unknown field `colour`"),
        ({"a": {"norms": 3}}, "norms"),
    ],
)
def test_a_broken_table_is_named(broken, told):
    with pytest.raises(CatalogError, match=f"'a'.*{told}"):
        complete(broken, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hidden // heads", 128), ("a or hidden", 4096), ("'x' if flag else 'y'", "y"), ("pattern[layer]", "S"),
        ("layer in [1, 2, 3]", True), ("0 < layer <= 2", True), ("not flag and hidden > 1", True), ("len(pattern)", 4),
        ("round_up(int(hidden * 2 / 3), 256)", 2816), ("get(nested, 'depth') or 7", 7), ("nested.width", 12), ("-layer", -2),
    ],
)  # fmt: skip
def test_an_expression_is_what_it_says(text, expected):
    fields = {
        "hidden": 4096,
        "heads": 32,
        "a": None,
        "flag": False,
        "pattern": "FFSS",
        "layer": 2,
        "nested": {"width": 12},
    }
    assert expected == parse(text)(fields.get)


@pytest.mark.parametrize("text", ["__import__('os')", "a ** b", "lambda: 1", "[x for x in a]", "a.b()", "1 +", "{}"])
def test_an_expression_can_do_nothing_else(text):
    with pytest.raises(CatalogError):
        parse(text)


def test_a_product_is_of_numbers():
    with pytest.raises(TypeError):
        parse("text * 1000000000")({"text": "x"}.get)
