"""Every command of the README and the documents prints what stands below it; after a change run `make readme`."""

import pytest
from tests.docs.console import BLOCK, running


def documents(repository):
    return [repository / "README.md", *sorted((repository / "docs").rglob("*.md"))]


@pytest.fixture(scope="module")
def runner(repository):
    with running(repository) as found:
        yield found


def test_every_command_prints_what_the_document_says(repository, runner):
    checked = 0
    for path in documents(repository):
        text = path.read_text(encoding="utf-8")
        checked += len(BLOCK.findall(text))

        assert (path.name, text) == (path.name, runner.renewed(text))
    assert checked >= 4
