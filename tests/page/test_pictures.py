"""The page as it looked when its pictures were kept, and that a page that looks otherwise is noticed."""

import json
import shutil

import pytest
from tests.page.pictures import KEPT, MOST_TILES, NAMES, RECORDED, TAKEN, compared, taken


def kept(name):
    return (KEPT / f"{name}.png").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_page_looks_as_it_did(browser, service, name):
    TAKEN.mkdir(parents=True, exist_ok=True)
    now = taken(browser, service, name)
    (TAKEN / f"{name}.png").write_bytes(now)
    difference = compared(browser, kept(name), now)
    if difference.visible:
        (TAKEN / f"{name}-difference.png").write_bytes(difference.picture)

    assert not difference.visible, f"{difference.share:.2%} of it differs: {TAKEN}/{name}-difference.png"


@pytest.mark.parametrize(
    "style",
    [
        ".hero.met { border-top-color: #a3191f; } .met > .says { color: #a3191f; }",
        ".legend li:nth-child(n + 3) { visibility: hidden; }",
        ".k-weights { fill: #888; }",
        "table.items tbody tr:nth-child(3) { display: none; }",
        ".head { margin-bottom: 40px; }",
    ],
    ids=["verdict in red", "words of the legend gone", "another colour of the bar", "a row less", "everything lower"],
)
def test_another_look_is_noticed(browser, service, style):
    assert compared(browser, kept("desktop-light"), taken(browser, service, "desktop-light", style=style)).visible


def test_another_verdict_is_noticed(browser, service, tmp_path):
    answers = shutil.copytree(RECORDED, tmp_path / "answers")
    told = json.loads((answers / "estimate.json").read_text()) | {"verdict": "excluded"}
    (answers / "estimate.json").write_text(json.dumps(told))

    assert compared(browser, kept("phone-dark"), taken(browser, service, "phone-dark", answers=answers)).visible


@pytest.mark.parametrize(
    "style",
    ["body { filter: blur(.35px); }", "html { margin-top: 1px; }", "select { border-radius: 2px; }"],
    ids=["softer edges", "a pixel lower", "controls of another browser"],
)
def test_how_edges_are_drawn_is_not_noticed(browser, service, style):
    assert not compared(browser, kept("desktop-light"), taken(browser, service, "desktop-light", style=style)).visible


def test_pictures_of_other_sizes_differ(browser):
    assert compared(browser, kept("desktop-light"), kept("phone-light")).share > MOST_TILES
