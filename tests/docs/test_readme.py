"""The README: its figures are those of the documents, its paths exist, its commands are rules of the Makefile."""

import re
import subprocess

import pytest
from tests.docs.accuracy import with_accuracy


@pytest.fixture(scope="module")
def readme(repository):
    return (repository / "README.md").read_text()


def test_the_table_of_accuracy_is_the_page_of_accuracy(repository, readme):
    """After `benchmarks/accuracy.py --write` run `make readme`."""
    assert readme == with_accuracy(readme, (repository / "docs" / "accuracy.md").read_text())


def test_every_path_of_the_map_exists(repository, readme):
    table = readme.split("## Where things are")[1]
    paths = [name for name in re.findall(r"`([A-Za-z./_]+)`", table) if "/" in name]

    assert 15 < len(paths)
    assert [] == [path for path in paths if not (repository / path).exists()]


def test_every_link_leads_to_a_file(repository, readme):
    for target in re.findall(r"\]\(([^)#:]+)\)", readme):
        assert (repository / target).exists(), target


def test_its_make_commands_are_rules(repository, readme):
    for rule in set(re.findall(r"`?\bmake ([a-z-]+)", readme)):
        result = subprocess.run(["make", "-n", rule], cwd=repository, capture_output=True, check=False)
        assert 0 == result.returncode, rule
