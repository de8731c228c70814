"""The picture beside the README is what the service draws now."""

import os
from pathlib import Path

from tests.docs.picture import picture

ROOT = Path(os.environ.get("REPOSITORY_UNDER_TEST", Path(__file__).resolve().parents[2]))


def test_the_picture_of_the_readme_is_of_this_version():
    assert picture() == (ROOT / "docs" / "memory.svg").read_text(encoding="utf-8"), "make readme"


def test_the_readme_shows_it_with_words_for_those_who_do_not_see_it():
    assert "](docs/memory.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")
