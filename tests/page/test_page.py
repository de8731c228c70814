"""The front page used as a person would."""

import json
import subprocess
import urllib.request

import pytest

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture
def page(browser, service):
    context = browser.new_context(viewport=DESKTOP, locale="en-US")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    opened.faults = []
    opened.on("pageerror", lambda error: opened.faults.append(str(error)))
    opened.on("console", lambda message: opened.faults.append(message.text) if message.type == "error" else None)
    opened.goto(service)
    opened.wait_for_selector("#digest")
    yield opened
    context.close()


def answered(page, change):
    """Make a change and wait for the answer to it."""
    with page.expect_response(
        lambda r: r.url.endswith("/estimate") and "ndjson" not in r.headers["content-type"]
    ) as waiting:
        change()
    answer = waiting.value.json()
    page.wait_for_function("d => document.getElementById('digest')?.textContent === d", arg=answer["digest"])
    return answer


def test_first_answer_stands_without_any_fault(page):
    page.wait_for_timeout(500)

    assert "fits" in page.inner_text("#answer .figure")
    assert [] == page.faults


def test_verdict_changes_when_the_context_grows(page):
    answer = answered(page, lambda: page.fill("#f-concurrency", "400"))

    assert "met" != answer["verdict"]
    assert "fits" != page.inner_text("#answer .figure .chip")


def test_an_item_opens_to_its_law_and_source(page):
    page.click("button.expand >> nth=0")

    assert "laws." in page.inner_text("tr.more dl")


def test_only_fields_that_matter_are_shown(page):
    assert page.query_selector("#f-rank") is None

    answered(page, lambda: page.check("input[value=training]", force=True))

    assert page.query_selector("#f-rank") is not None
    assert page.query_selector("#f-max_model_len") is None


def test_the_copied_curl_line_gives_the_same_digest(page):
    page.click("#copy-curl")
    line = page.evaluate("navigator.clipboard.readText()")

    result = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)

    assert page.inner_text("#digest") == json.loads(result.stdout)["digest"]


def test_a_shared_address_holds_the_whole_card(page, browser):
    answered(page, lambda: page.fill("#f-max_model_len", "4096"))
    context = browser.new_context()
    other = context.new_page()
    other.goto(page.url)
    other.wait_for_selector("#digest")

    assert page.inner_text("#digest") == other.inner_text("#digest")
    context.close()


def test_page_and_json_show_the_same_figure(page):
    answer = answered(page, lambda: page.fill("#f-concurrency", "3"))
    low, high = (answer["required"][end] / 2**30 for end in ("low", "high"))

    assert f"{low:.2f} GiB – {high:.2f} GiB" == page.inner_text("#answer .figure strong")


def test_units_are_switched_and_always_labelled(page):
    page.check("input[value=GB]", force=True)

    assert page.inner_text("#answer .figure strong").endswith(" GB")
    assert "GiB" not in page.inner_text("#answer table")


def test_packages_can_be_found_and_sorted_by_price(page):
    page.click("#find")
    page.wait_for_selector("#packages table")
    page.click("button.sort:has-text('Price')")
    prices = [
        float(c.inner_text().split()[0])
        for c in page.query_selector_all("#packages tbody tr td.number:nth-child(3)")[:5]
    ]

    assert prices
    assert sorted(prices) == prices


def test_a_typo_is_explained_where_the_answer_would_be(page):
    page.fill("#f-gpu", "l40z")
    page.wait_for_selector("[role=alert]")

    assert "l40s" in page.inner_text("[role=alert]")


@pytest.mark.parametrize("language", ["ru", "vi"])
def test_page_speaks_other_languages(page, language):
    page.select_option("#language", language)

    assert language == page.get_attribute("html", "lang")
    assert "GPU memory, and why" != page.inner_text("#title")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_accessible_and_fits_its_width(browser, service, size, scheme, tmp_path):
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(viewport=size, color_scheme=scheme, locale="en-US", bypass_csp=True)
    opened = context.new_page()
    opened.goto(service)
    opened.wait_for_selector("#digest")
    opened.screenshot(path=tmp_path / "page.png", full_page=True)
    violations = Axe().run(opened).response["violations"]

    assert [] == [(v["id"], [n["html"][:120] for n in v["nodes"]]) for v in violations]
    assert opened.evaluate("document.documentElement.scrollWidth") <= size["width"]
    context.close()


def test_page_loads_under_150_kilobytes_from_this_host_alone(browser, service):
    context = browser.new_context()
    opened = context.new_page()
    seen = []
    opened.on("response", lambda r: seen.append((r.url, len(r.body()))))
    opened.goto(service)
    opened.wait_for_selector("#digest")
    assets = [n for url, n in seen if "/page/" in url or url.rstrip("/") == service]

    assert {True} == {url.startswith(service) for url, _ in seen if not url.startswith("data:")}
    assert sum(assets) < 150_000
    context.close()


def test_picture_and_json_show_the_same_verdict(service):
    query = "/estimate?model=meta-llama/Llama-3.1-8B-Instruct&engine=vllm&gpu=l40s"
    answer = json.load(urllib.request.urlopen(service + query))
    picture = (
        urllib.request.urlopen(urllib.request.Request(service + query, headers={"Accept": "image/svg+xml"}))
        .read()
        .decode()
    )

    assert f"{answer['required']['expected'] / 2**30:.2f} GiB" in picture
