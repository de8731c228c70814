"""docs/laws.md and the table of docs/method.md are what the code makes; after a change run `make readme`."""

import re

from tests.docs.law_page import laws, laws_page, with_method_table


def test_the_page_of_laws_is_current(repository):
    assert laws_page() == (repository / "docs" / "laws.md").read_text()


def test_every_law_is_on_the_page_with_code_and_source(repository):
    entries = (repository / "docs" / "laws.md").read_text().split("\n### ")[1:]

    assert [law.id for law in sorted(laws(), key=lambda law: (law.topic, law.id))] == [
        entry.split("\n", 1)[0] for entry in entries
    ]
    for entry in entries:
        assert "```python\ndef " in entry
        assert re.search(r"^Source: \S", entry, re.MULTILINE), entry[:60]


def test_the_table_of_laws_by_item_is_current(repository):
    page = (repository / "docs" / "method.md").read_text()

    assert with_method_table(page) == page


def test_the_law_of_the_recipe_is_one(repository):
    """The example of docs/adding.md keeps to what tests/architecture asks of a law."""
    code = re.search(r"```python\n(def .*?)```", (repository / "docs" / "adding.md").read_text(), re.DOTALL)[1]
    names = {"ceil_div": lambda a, b: -(-a // b)}
    exec(code, names)
    law = names["ring_buffer"]

    assert 48 * 1024 == law(window_tokens=33, bytes_per_token=1024, block_size=16)
    assert all(f"{name}: " in law.__doc__ for name in law.__kwdefaults__ or law.__annotations__ if name != "return")
    assert re.search(r"Returns:\n.*\[bytes\]\n\n    Source:", law.__doc__, re.DOTALL)
