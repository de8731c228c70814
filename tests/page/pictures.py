"""
Pictures of the page from recorded answers, and how two pictures are compared.

Numbers of the service may move without moving a picture: what the page asks is answered from `recorded/`, in one font for
every machine. `make pictures` draws those that are kept anew, `make pictures ANSWERS=1` records the answers first.
"""

import base64
import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
KEPT, RECORDED = HERE / "kept", HERE / "recorded"
TAKEN = Path(os.environ.get("REPOSITORY_UNDER_TEST", HERE.parent.parent)) / ".cache" / "pictures"
"""Pictures of the last run, and what differs in them."""

SIZES = {"desktop": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
SCHEMES = ("light", "dark")
NAMES = [f"{size}-{scheme}" for size in SIZES for scheme in SCHEMES]

TILE = 12
"""Side of the squares whose mean colours are compared: another rasterizer, or a line that is a pixel
higher, moves no mean; another word does. [pixels]"""
STEP = 10
"""Least difference of a mean that an eye would see. [of 255]"""
MOST_TILES = 0.002
"""Share of the squares that may differ. [fraction]"""

FONT = """
@font-face { font-family: Plain; src: url(data:font/woff2;base64,%s); }
* { font-family: Plain !important; text-rendering: geometricPrecision; }
#summary { display: none !important; }
* { transition: none !important; caret-color: transparent !important; }
"""

COMPARE = """
async ([kept, taken, tile, step]) => {
  const draw = async (data) => {
    const image = new Image();
    image.src = 'data:image/png;base64,' + data;
    await image.decode();
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] = [image.width, image.height];
    const context = canvas.getContext('2d', { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    return [canvas, context];
  };
  const [[a, left], [b, right]] = [await draw(kept), await draw(taken)];
  const width = Math.max(a.width, b.width), height = Math.max(a.height, b.height);
  const mean = (context, x, y) => {
    const { data } = context.getImageData(x, y, tile, tile);
    const sums = [0, 0, 0];
    for (let i = 0; i < data.length; i += 4) for (let c = 0; c < 3; c++) sums[c] += data[i + c];
    return sums.map((sum) => sum / (data.length / 4));
  };
  let tiles = 0, different = 0;
  right.fillStyle = 'rgba(255, 0, 80, .45)';
  const marks = [];
  for (let y = 0; y < height; y += tile) for (let x = 0; x < width; x += tile) {
    tiles++;
    const one = mean(left, x, y);
    const same = (other) => one.every((value, c) => Math.abs(value - other[c]) <= step);
    if (![0, -1, 1].some((shift) => same(mean(right, x, y + shift)))) { different++; marks.push([x, y]); }
  }
  for (const [x, y] of marks) right.fillRect(x, y, tile, tile);
  return { share: different / tiles, picture: b.toDataURL('image/png').split(',')[1] };
}
"""


class Difference(NamedTuple):
    """How far two pictures are apart."""

    share: float
    """Squares that differ. [fraction]"""
    picture: bytes
    """The second one with those squares marked, as PNG."""

    @property
    def visible(self) -> bool:
        return self.share > MOST_TILES


def compared(browser, kept: bytes, taken: bytes) -> Difference:
    page = browser.new_page()
    try:
        pair = [base64.b64encode(picture).decode() for picture in (kept, taken)]
        found = page.evaluate(COMPARE, [*pair, TILE, STEP])
    finally:
        page.close()
    return Difference(found["share"], base64.b64decode(found["picture"]))


def taken(browser, service: str, name: str, *, answers: Path = RECORDED, style: str = "") -> bytes:
    """The page, whole and at half its size, as one visitor sees it."""
    size, scheme = name.split("-")
    context = browser.new_context(
        viewport=SIZES[size], color_scheme=scheme, locale="en-US", bypass_csp=True, device_scale_factor=0.5
    )
    page = context.new_page()
    page.route("**/estimate*", lambda route: route.fulfill(**answer_to(route.request, answers)))
    page.route("**/fit*", lambda route: route.fulfill(**answer_to(route.request, answers)))
    page.goto(service)
    font = base64.b64encode((RECORDED / "plain.woff2").read_bytes()).decode()
    page.add_style_tag(content=FONT % font + style)
    page.evaluate("document.fonts.ready")
    page.wait_for_selector("#packages table")
    page.wait_for_selector(".curve")
    page.evaluate("window.dispatchEvent(new Event('resize'))")
    picture = page.screenshot(full_page=True)
    context.close()
    return picture


def file_of(request) -> str:
    if "/fit" in request.url:
        return "fit.json"
    return "batch.ndjson" if "ndjson" in request.headers["content-type"] else "estimate.json"


def answer_to(request, answers: Path) -> dict[str, object]:
    name = file_of(request)
    kind = "application/x-ndjson" if name.endswith("ndjson") else "application/json"
    return {"status": 200, "content_type": kind, "body": (answers / name).read_bytes()}


def record(browser, service: str) -> None:
    """What the service answers to the page as it opens, without what no picture shows."""
    context = browser.new_context(viewport=SIZES["desktop"], locale="en-US")
    page = context.new_page()
    found = {}
    page.on("response", lambda r: found.update({file_of(r.request): r}) if r.request.method == "POST" else None)
    page.goto(service)
    page.wait_for_selector("#packages table")
    page.wait_for_selector(".curve")
    for name, response in found.items():
        text = response.text()
        if name.endswith(".json"):
            text = json.dumps(_shown(response.json()), ensure_ascii=False, separators=(",", ":")) + "\n"
        (RECORDED / name).write_text(text, encoding="utf-8")
    context.close()


def _shown(answer):
    if isinstance(answer, dict):
        return {
            k: _shown(v)
            for k, v in answer.items()
            if k not in ("kubernetes", "evidence", "env", "docker", "kv_cache_dtype")
        }
    return [_shown(entry) for entry in answer] if isinstance(answer, list) else answer


def main() -> None:
    from playwright.sync_api import sync_playwright
    from tests.page.conftest import BROWSER, FLAGS, running_service

    with running_service() as service, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        if "--answers" in sys.argv:
            record(browser, service)
        for name in NAMES:
            (KEPT / f"{name}.png").write_bytes(taken(browser, service, name))
        browser.close()


if __name__ == "__main__":
    main()
