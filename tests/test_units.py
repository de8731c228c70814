"""Sizes go in and out with their unit."""

import pytest

from tonnage import units


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6 GiB", 6 * 2**30),
        ("24 GB", 24 * 10**9),
        ("512MiB", 512 * 2**20),
        (1234, 1234),
        ("1.5 GiB", 3 * 2**29),
        ("0.1 B", 1),
    ],
)
def test_sizes_are_read_exactly_and_rounded_up(text, expected):
    assert expected == units.parse_size(text)


def test_bare_prefix_is_refused_with_both_readings():
    with pytest.raises(ValueError, match=r"6000000000 bytes.*6442450944 bytes"):
        units.parse_size("6G")


@pytest.mark.parametrize("text", ["80 gigs", "six GiB", "", "6 GiB\n", "1e3 GB", "-1 GB"])
def test_nonsense_is_refused(text):
    with pytest.raises(ValueError, match=r"size|unit"):
        units.parse_size(text)


def test_published_conversions_come_out():
    assert "13.04 GiB" == units.format_size(14 * 10**9)
    assert "22.35 GiB" == units.format_size(24 * 10**9)
