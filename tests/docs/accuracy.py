"""The README's table of accuracy: a few columns of docs/accuracy.md, never typed."""

import re

MARKED = re.compile(r"(?<=<!-- accuracy -->\n).*?(?=<!-- /accuracy -->)", re.DOTALL)
COLUMNS = ("engine", "framework", "term", "counter", "n", "median", "p90", "in band")
"""Columns shown, where the page has them."""


def rows(page: str) -> list[list[str]]:
    """First table of a page, heading first, without the rule below it."""
    table = re.search(r"(?:^\|.*\n)+", page, re.MULTILINE)
    assert table is not None
    lines = [line.strip("| ").split(" | ") if " | " in line else [line] for line in table[0].splitlines()]
    return [lines[0], *lines[2:]]


def with_accuracy(readme: str, page: str) -> str:
    """The README with the table as the page has it."""
    head, *body = rows(page)
    shown = [head.index(name) for name in COLUMNS if name in head]
    lines = [[row[n] for n in shown] for row in (head, *body)]
    lines.insert(1, ["---"] * len(shown))
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return MARKED.sub(lambda _: text, readme)
