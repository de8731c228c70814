"""The front page used as a person would."""

import json
import subprocess
import time
import urllib.request

import pytest
from tests.page.pictures import TAKEN
from tests.waiting import SECONDS

DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture
def page(browser, service):
    context = browser.new_context(viewport=DESKTOP, locale="en-US")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    opened.faults = []
    opened.on("pageerror", lambda error: opened.faults.append(str(error)))
    opened.on("console", lambda message: opened.faults.append(message.text) if message.type == "error" else None)
    opened.goto(service)
    settled(opened)
    yield opened
    context.close()


def settled(page):
    """Answer, curve and packages are there."""
    page.wait_for_selector("#digest", state="attached")
    page.wait_for_selector("#packages section")


def until(page, script, arg=None):
    """Until it is true. Asked anew each time: what Playwright would repeat inside the page the page's policy forbids."""
    deadline = time.monotonic() + SECONDS
    while not page.evaluate(script, arg):
        assert time.monotonic() < deadline, script
        page.wait_for_timeout(20)


def answered(page, change):
    """Make a change and wait for the answer to it."""
    with page.expect_response(
        lambda r: (
            r.ok and "/estimate?" in r.url and "ndjson" not in r.headers["content-type"] and "=derivations" not in r.url
        )
    ) as waiting:
        change()
    answer = waiting.value.json()
    until(page, "d => document.getElementById('digest')?.textContent === d", arg=answer["digest"])
    return answer


def clipboard(page, button):
    """What the button copies; emptied first, since writing ends after the click."""
    page.evaluate("navigator.clipboard.writeText('')")
    page.click(button)
    until(page, "navigator.clipboard.readText().then(text => text !== '')")
    return page.evaluate("navigator.clipboard.readText()")


def test_first_screen_says_whether_it_fits_what_to_order_and_how_sure(page):
    screen = page.inner_text(".hero")

    assert "Fits on 1 × L40S" in screen
    assert "Cheapest that can fit" in screen
    assert "95 % band" in screen
    assert page.locator(".hero .actions").bounding_box()["y"] < DESKTOP["height"]
    assert [] == page.faults


def test_on_a_phone_the_verdict_stays_in_sight_while_the_form_is_filled_in(browser, service):
    context = browser.new_context(viewport={"width": 375, "height": 620}, locale="en-US")
    opened = context.new_page()
    opened.goto(service)
    settled(opened)
    with opened.expect_response(
        lambda response: "/fit" in response.url
    ):  # packages that arrive later move what is in sight
        opened.fill("#f-concurrency", "64")
    opened.wait_for_selector(".hero.excluded")
    opened.evaluate("window.scrollTo(0, 0)")
    opened.wait_for_selector("#summary:visible")
    line = opened.inner_text("#summary")
    opened.click("#summary")
    opened.wait_for_selector("#summary", state="hidden")

    assert line.startswith("Does not fit on 1 × L40S")
    context.close()


def test_verdict_changes_when_the_context_grows(page):
    answer = answered(page, lambda: page.fill("#f-max_model_len", "65536"))

    assert "met" != answer["verdict"]
    assert "Fits" not in page.inner_text("#verdict")


def test_a_change_that_would_make_it_fit_is_offered_and_tried(page):
    answered(page, lambda: page.fill("#f-concurrency", "64"))
    page.wait_for_selector(".changes button")

    answer = answered(page, lambda: page.click(".changes li:has(.chip.met) button >> nth=0"))

    assert "met" == answer["verdict"]


def test_a_model_is_found_by_typing_part_of_its_name(page):
    with page.expect_response(lambda r: "/catalog/models" in r.url and "q=qwen3-8" in r.url):
        page.fill("#f-model", "qwen3-8")
    page.wait_for_selector("#models option[value='Qwen/Qwen3-8B']", state="attached")

    answer = answered(page, lambda: page.fill("#f-model", "Qwen/Qwen3-8B"))

    assert "Qwen/Qwen3-8B" == answer["model"]["id"]


def test_only_fields_that_matter_are_shown(page):
    assert page.query_selector("#f-rank") is None

    answered(page, lambda: page.check("input[value=training]", force=True))

    assert page.query_selector("#f-rank") is not None
    assert page.query_selector("#f-max_model_len") is None


def test_a_pasted_config_is_sized(page):
    page.click("summary:has-text('config.json')")
    answer = answered(page, lambda: page.fill("#f-config", json.dumps(CONFIG)))

    assert 1_235_814_400 == answer["model"]["parameters"]["total"]


def test_a_config_that_is_no_json_is_explained(page):
    page.click("summary:has-text('config.json')")
    page.fill("#f-config", "{")
    page.wait_for_selector("[role=alert]")

    assert "JSON" in page.inner_text("[role=alert]")


# ---- items, their formulas, phases, counters, units ----


def test_an_item_opens_to_its_formula_with_the_numbers_put_in(page):
    page.click("button.expand:has-text('KV cache')")
    page.wait_for_selector("tr.more math")
    shown = page.inner_text("tr.more").replace("\u202f", "")

    assert "8×(256+256)" in shown.replace(" ", "").replace("\n", "")
    assert "131072" in shown.replace(",", "")
    assert "laws.budget.pool_of_budget" in shown


def test_every_formula_of_the_page_ends_in_the_bytes_of_the_answer(page):
    answer = answered(page, lambda: page.fill("#f-concurrency", "3"))
    phase = next(p for p in answer["gpus"][0]["phases"] if p["phase"] == answer["peak"]["phase"])
    for at in range(page.locator("table.items button.expand").count()):
        page.click(f"table.items button.expand >> nth={at}")
    page.wait_for_selector("tr.more math")
    shown = {text.split(" = ")[1] for text in page.locator(".result").all_inner_texts()}

    assert {f"{item['bytes']['expected']:,} B" for item in phase["items"]} == shown


def test_phases_are_pictures_to_choose_from(page):
    page.check("input[name=phase][value=load]", force=True)
    rows = page.locator("table.items tbody tr").all_inner_texts()

    assert not any("KV cache" in row for row in rows)
    assert any("model weights" in row for row in rows)


def test_counters_are_switched(page):
    before = page.locator("table.items .sum").inner_text()
    page.check("input[name=counter][value=allocated]", force=True)

    assert before != page.locator("table.items .sum").inner_text()
    assert "GPU driver" not in page.inner_text("table.items")


def test_units_are_switched_and_always_labelled(page):
    page.check("input[value=GB]", force=True)

    assert page.inner_text("#answer .figure strong").endswith(" GB")
    for part in (".hero", "table.items", "#packages table.offers", ".phases"):
        assert "GiB" not in page.inner_text(part)
        assert " GB" in page.inner_text(part)


def test_page_and_json_show_the_same_figure(page):
    answer = answered(page, lambda: page.fill("#f-concurrency", "3"))
    low, high = (answer["required"][end] / 2**30 for end in ("low", "high"))

    assert f"{low:.2f} – {high:.2f} GiB" == page.inner_text("#answer .figure strong")


def test_the_curve_marks_the_card_and_one_more_request_is_priced(page):
    page.wait_for_selector(".curve")

    assert "yours: 16 × 8k" in page.locator(".curve").text_content()
    assert "one more request: 1.00 GiB" in page.inner_text(".facts")


# ---- what can be taken along ----


def test_the_copied_curl_line_gives_the_same_digest(page):
    line = clipboard(page, "#copy-curl")
    result = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)

    assert page.locator("#digest").inner_text() == json.loads(result.stdout)["digest"]


def test_the_copied_launch_command_is_a_shell_line(page):
    page.wait_for_selector("#copy-launch")

    assert clipboard(page, "#copy-launch").startswith("vllm serve meta-llama/Llama-3.1-8B-Instruct --")


def test_a_shared_address_holds_the_whole_card(page, browser):
    answered(page, lambda: page.fill("#f-max_model_len", "4096"))
    address = clipboard(page, "#copy-link")
    context = browser.new_context()
    other = context.new_page()
    other.goto(address)
    settled(other)

    assert page.inner_text("#digest") == other.inner_text("#digest")
    context.close()


# ---- packages ----


def prices(page):
    texts = page.locator("#packages table.offers > tbody > tr:not(.more) > td.number:nth-child(4)").all_inner_texts()
    return [float(text.replace("$", "").replace(",", "")) for text in texts]


def test_packages_are_sorted_by_price_first_and_by_any_column_on_request(page):
    assert prices(page) == sorted(prices(page))

    page.click("button.sort:has-text('Stays free')")

    assert page.get_attribute("th[aria-sort]", "aria-sort") == "descending"
    assert page.evaluate("document.activeElement.textContent") == "Stays free"


def test_a_package_opens_to_its_requirements_launch_command_and_alternatives(page):
    page.click("#packages button.expand >> nth=0")
    page.wait_for_selector("#packages tr.more table")
    shown = page.inner_text("#packages tr.more")

    assert "memory" in shown
    assert "vllm serve" in shown
    assert "One change at a time" in shown


def test_more_packages_and_another_duration_are_asked_for(page):
    few, dear = len(prices(page)), prices(page)[0]
    first = "document.querySelector('table.offers > tbody > tr:not(.more) > td.number:nth-child(4)').textContent"
    with page.expect_response(lambda r: "/fit?" in r.url):
        page.click("#more")
    until(page, "n => document.querySelectorAll('table.offers > tbody > tr').length > n", arg=few)
    before = page.evaluate(first)
    page.select_option("#duration", "1 day")
    until(page, f"before => {first} !== before", arg=before)

    assert prices(page)[0] < dear


def test_a_question_about_packages_that_is_refused_leaves_the_answer_and_says_why(page):
    refusal = {"title": "No", "status": 422, "detail": "no package is judged today"}
    page.route("**/fit?*", lambda route: route.fulfill(status=422, json=refusal))
    answered(page, lambda: page.fill("#f-concurrency", "5"))
    until(page, "document.querySelector('.facts').textContent.includes('no package is judged today')")

    assert "Fits on 1 × L40S" == page.inner_text("#verdict")


# ---- for everyone ----


def test_everything_can_be_reached_and_opened_with_the_keyboard_alone(page):
    reached = set()
    page.keyboard.press("Tab")
    for _ in range(90):
        reached.add(page.evaluate("(e => e.id || e.name || e.className || e.tagName)(document.activeElement)"))
        page.keyboard.press("Tab")
    page.focus("button.expand[id^=i-] >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_selector("tr.more math")

    assert {
        "api",
        "unit",
        "language",
        "f-model",
        "mode",
        "f-concurrency",
        "f-gpu",
        "copy-curl",
        "copy-link",
        "duration",
    } <= reached
    assert page.evaluate("document.activeElement.id").startswith("i-")


@pytest.mark.parametrize("name", ["mode", "counter", "unit", "phase"])
def test_a_choice_keeps_the_focus(page, name):
    key = "ArrowLeft" if name in ("counter", "phase") else "ArrowRight"
    page.focus(f"input[name={name}]:checked")
    if name == "mode":
        answered(page, lambda: page.keyboard.press(key))
        settled(page)
    else:
        page.keyboard.press(key)

    assert name == page.evaluate("document.activeElement.name")


def test_a_typo_is_explained_where_the_answer_would_be_and_mended_by_a_click(page):
    page.fill("#f-gpu", "l40z")
    page.wait_for_selector("[role=alert] button")

    answer = answered(page, lambda: page.click("[role=alert] button:text-is('l40s')"))

    assert "met" == answer["verdict"]


@pytest.mark.parametrize(("language", "says"), [("ru", "Помещается на 1 × L40S"), ("vi", "Vừa trên 1 × L40S")])
def test_page_speaks_other_languages(page, language, says):
    page.select_option("#language", language)
    until(page, "l => document.documentElement.lang === l", arg=language)

    assert language == page.get_attribute("html", "lang")
    assert says == page.inner_text("#verdict")


def test_every_word_is_translated(page):
    script = "Promise.all(Object.entries(LANGUAGES).map(async ([l, { words }]) => [l, Object.keys(await words())]))"
    words = page.evaluate(f"import('/page/strings.js').then(({{ LANGUAGES }}) => {script})")
    known = {language: set(keys) for language, keys in words}
    left = {language: sorted(known["en"] - keys) for language, keys in known.items()}
    same_everywhere = {"gpuIndex"}

    assert {"en": set(), "ru": set(), "vi": set()} == {
        language: set(keys) - same_everywhere for language, keys in left.items()
    }


@pytest.mark.parametrize("language", ["en-US", "ru-RU", "vi-VN"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_accessible_and_fits_its_width(browser, service, size, scheme, language):
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(viewport=size, color_scheme=scheme, locale=language, bypass_csp=True)
    opened = context.new_page()
    opened.goto(service)
    settled(opened)
    opened.click("#packages button.expand >> nth=0")
    opened.click("button.expand[id^=i-] >> nth=0")
    opened.wait_for_selector("tr.more math")
    opened.wait_for_selector("#packages tr.more table")
    violations = Axe().run(opened).response["violations"]

    assert [] == [(v["id"], [n["html"][:120] for n in v["nodes"]]) for v in violations]
    assert opened.evaluate("document.documentElement.scrollWidth") <= size["width"]
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("change", ["excluded", "training", "problem"])
def test_other_answers_are_accessible_too(browser, service, scheme, change):
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(viewport=PHONE, color_scheme=scheme, locale="en-US", bypass_csp=True)
    opened = context.new_page()
    opened.goto(service)
    settled(opened)
    if change == "excluded":
        opened.fill("#f-concurrency", "64")
        opened.wait_for_selector(".changes")
    elif change == "training":
        opened.check("input[value=training]", force=True)
        opened.wait_for_selector("input[name=phase][value=backward]", state="attached")
    else:
        opened.fill("#f-gpu", "l40z")
        opened.wait_for_selector("[role=alert]")
    violations = Axe().run(opened).response["violations"]

    assert [] == [(v["id"], [n["html"][:120] for n in v["nodes"]]) for v in violations]
    assert opened.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    context.close()


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_reference_shows_an_operation_at_once_and_answers_there(browser, service, size, scheme):
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=True)
    opened = context.new_page()
    opened.goto(service + "/docs")
    opened.wait_for_selector("#details h2:has-text('/estimate')")
    opened.click("button:text-is('Send')")
    opened.wait_for_selector("#details pre:has-text('200 OK')")
    violations = Axe().run(opened).response["violations"]

    assert [] == [(v["id"], [n["html"][:120] for n in v["nodes"]]) for v in violations]
    assert opened.evaluate("document.documentElement.scrollWidth") <= size["width"]
    context.close()


# ---- small and quick ----


def test_page_and_its_answers_load_under_150_kilobytes_from_this_host_alone(browser, service):
    context = browser.new_context()
    opened = context.new_page()
    seen = []
    opened.on("response", lambda r: seen.append((r.url, len(r.body()))))
    opened.goto(service)
    settled(opened)
    opened.wait_for_selector(".curve")
    sizes = [(url.removeprefix(service), size) for url, size in seen if not url.startswith("data:")]
    TAKEN.mkdir(parents=True, exist_ok=True)
    (TAKEN / "bytes.json").write_text(json.dumps({"total": sum(n for _, n in sizes), "each": dict(sizes)}, indent=1))

    assert all(url.startswith(service) for url, _ in seen if not url.startswith("data:"))
    assert sum(size for _, size in sizes) < 150_000
    context.close()


def test_how_long_the_first_answer_takes_is_written_down(browser, service):
    context = browser.new_context(viewport=DESKTOP)
    times = []
    for _ in range(5):
        opened = context.new_page()
        started = time.perf_counter()
        opened.goto(service, wait_until="commit")
        opened.wait_for_selector("#digest", state="attached")
        whole = 1000 * (time.perf_counter() - started)
        entries = opened.evaluate(
            "performance.getEntriesByType('resource').filter((e) => e.name.includes('/estimate?')).map((e) => e.duration)"
        )
        times.append({"from opening to the answer, ms": round(whole, 1), "first answer, ms": round(entries[0], 1)})
        opened.close()
    TAKEN.mkdir(parents=True, exist_ok=True)
    (TAKEN / "times.json").write_text(json.dumps(times, indent=1))
    context.close()

    assert all(entry["first answer, ms"] > 0 for entry in times)


def test_picture_and_json_show_the_same_figures(service):
    query = "/estimate?model=meta-llama/Llama-3.1-8B-Instruct&engine=vllm&gpu=l40s"
    answer = json.load(urllib.request.urlopen(service + query))
    picture = (
        urllib.request.urlopen(urllib.request.Request(service + query, headers={"Accept": "image/svg+xml"}))
        .read()
        .decode()
    )

    assert f"{answer['required']['expected'] / 2**30:.2f} GiB" in picture
