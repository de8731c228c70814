"""Every rendering says the numbers of the answer, and nothing a caller wrote can break out of it."""

import csv
import io
from xml.etree import ElementTree as ET

import answers
import msgspec
import pytest

from tonnage import render
from tonnage.spec import fit, report
from tonnage.units import GiB

HOSTILE = 'a|b <script>alert(1)</script> "&\x07\x1b[31m\n=cmd'


def test_the_terminal_table_has_verdict_items_and_notes():
    text = render.table.estimate(answers.estimate())

    for piece in (
        "19.00 GiB",
        "verdict    met",
        "weights",
        "14.00 GiB",
        "23.00 GiB",
        "serving.block_size = 16",
        "driver version",
    ):
        assert piece in text


def test_lines_of_a_table_have_no_trailing_blanks_and_line_up():
    lines = render.table.columns([("item", "bytes"), ("weights", "1"), ("kv", "1000")], right=(1,))

    assert ["item     bytes", "weights      1", "kv        1000"] == lines


def test_the_fit_table_lists_candidates_in_rank_order_with_prices():
    text = render.table.fit(
        answers.answer(answers.candidate(1), answers.candidate(2, "shop:l40s", "needs_confirmation"))
    )

    assert text.index("shop:rtx-4090") < text.index("shop:l40s")
    assert "47.14 USD" in text
    assert "to confirm" in text


def test_markdown_tables_keep_their_columns_whatever_the_names():
    text = render.markdown.fit(answers.answer(answers.candidate(1, HOSTILE)))
    rows = [line for line in text.splitlines() if line.startswith("|")]

    assert {10} == {line.replace("\\|", "").count("|") for line in rows}
    assert "<script>" not in text


@pytest.mark.parametrize(
    "picture",
    [
        render.svg.estimate(answers.estimate()),
        render.svg.estimate(answers.estimate(HOSTILE)),
        render.svg.fit(answers.answer()),
        render.svg.fit(answers.answer(answers.candidate(1, HOSTILE))),
    ],
)
def test_pictures_are_well_formed_accessible_and_small(picture):
    root = ET.fromstring(picture)

    assert "{http://www.w3.org/2000/svg}svg" == root.tag
    assert ["title", "desc"] == [child.tag.split("}")[1] for child in root][:2]
    assert "prefers-color-scheme:dark" in picture
    assert len(picture) < 6_000


def test_the_bar_of_a_component_is_as_wide_as_its_share():
    root = ET.fromstring(render.svg.estimate(answers.estimate()))
    widths = {
        rect[0].text.split(" ")[0]: float(rect.get("width"))
        for rect in root.iter("{http://www.w3.org/2000/svg}rect")
        if len(rect)
    }

    assert pytest.approx(14 / 4, rel=0.01) == widths["weights"] / widths["kv_cache"]


def test_the_same_answer_is_the_same_picture():
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(answers.estimate()), type=type(answers.estimate()))

    assert render.svg.estimate(answers.estimate()) == render.svg.estimate(again)


def test_lists_are_csv_with_a_heading_and_without_formulas():
    text = render.table_csv([{"id": "a", "bytes": 24 * GiB}, {"id": "=1+1", "tags": ["x", "y"], "ok": True}])
    rows = list(csv.reader(io.StringIO(text)))

    assert [["id", "bytes", "tags", "ok"], ["a", str(24 * GiB), "", ""], ["'=1+1", "", "x;y", "true"]] == rows


def test_an_empty_list_is_still_csv():
    assert "\r\n" == render.table_csv([])


def test_control_characters_of_a_name_never_reach_a_terminal():
    text = render.table.estimate(answers.estimate(HOSTILE))

    assert not {"\x07", "\x1b"} & set(text)


def test_todays_run_stands_in_the_table_with_its_open_requirements():
    whole = answers.answer()
    remedy = report.Remedy(
        field="/serving/max_model_len",
        from_=8192,
        to=4096,
        saves_bytes=GiB,
        required=report.exactly(18 * GiB),
        verdict="met",
        cost="shorter",
    )
    today = fit.CurrentReport(candidate=answers.candidate(0, "current:rtx-4090", "excluded"), remedies=(remedy,))
    text = render.table.fit(msgspec.structs.replace(whole, current=today))

    assert "today      1 x rtx-4090, 1 GPU: excluded" in text
    assert "memory: because" in text
    assert "/serving/max_model_len" in text


def test_a_selected_package_that_is_not_among_the_listed_ones_is_described_too():
    few = answers.answer(answers.candidate(1, "shop:l40s", "needs_confirmation"))
    text = render.markdown.fit(msgspec.structs.replace(few, selected=answers.candidate(9, "shop:far-down")))

    assert "## Package: shop:far-down\n\n1 x " in text


def test_a_long_name_is_drawn_closer_and_never_over_its_bar():
    short, long = (msgspec.structs.replace(answers.candidate(1), gpu=name) for name in ("l4", "rtx-pro-6000-server"))

    assert "textLength" not in render.svg.fit(answers.answer(short))
    assert 'textLength="172"' in render.svg.fit(answers.answer(long))
