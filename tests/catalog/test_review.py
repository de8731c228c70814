"""An overlay can be checked before use, and two catalogues compared record by record."""

from decimal import Decimal

import pytest

from tonnage.catalog import load_catalog
from tonnage.catalog.review import Change, diff, validate


@pytest.fixture(scope="module")
def builtin():
    return load_catalog()


def test_a_good_overlay_has_no_problems(tmp_path):
    (tmp_path / "a.toml").write_text('[[package]]\nid = "aws:p5.48xlarge:us-east-1"\nvcpus = 12\n')
    assert [] == validate(tmp_path)


def test_every_problem_of_an_overlay_is_listed(tmp_path):
    (tmp_path / "a.toml").write_text('[[package]]\nid = "aws:p5.48xlarge:us-east-1"\ngpu = "nothing"\n')
    (tmp_path / "b.toml").write_text('[[gpu]]\nid = "x"\n')
    (tmp_path / "c.toml").write_text("[")
    problems = validate(tmp_path)
    assert ["c.toml", "b.toml", "package 'aws:p5.48xlarge:us-east-1'"] == [
        p.split(":")[0] if "toml" in p else p.split(": ")[0] for p in problems
    ]


def test_equal_catalogues_do_not_differ(builtin):
    assert () == diff(builtin, load_catalog())


def test_changes_name_record_field_and_both_values(builtin, tmp_path):
    (tmp_path / "a.toml").write_text(
        '[[package]]\nid = "aws:p5.48xlarge:us-east-1"\nvcpus = 12\n'
        '[[package]]\nid = "aws:p5.4xlarge:us-east-1"\nwithdrawn = true\n'
        '[[package]]\nid = "own:x"\nprovider = "own"\ngpu = "l4"\ngpus_per_host = 1\nsource = "t"\n'
    )
    expected = (
        Change("packages", "aws:p5.4xlarge:us-east-1", "removed"),
        Change("packages", "aws:p5.48xlarge:us-east-1", "changed", {"vcpus": (192, 12)}),
        Change("packages", "own:x", "added"),
    )
    assert expected == diff(builtin, load_catalog(tmp_path))


def test_a_changed_price_shows(builtin, tmp_path):
    (tmp_path / "a.toml").write_text(
        '[[package]]\nid = "iteragpu:rtx-4090:1x:3d"\n'
        'offers = [{ kind = "package", price = "50.00", per = "term", term_hours = 72, as_of = "2026-11-29" }]\n'
    )
    (change,) = diff(builtin, load_catalog(tmp_path))
    before, after = change.fields["offers"]
    assert (Decimal("47.14"), Decimal("50.00")) == (before[0].price, after[0].price)
