"""The built pages load nothing from another host, and nothing that is missing."""

import functools
import http.server
import threading

import pytest
from tests.page.conftest import BROWSER, FLAGS
from tests.waiting import SECONDS


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        """Nothing: the test's output is not this server's log."""


@pytest.fixture(scope="module")
def site(repository):
    folder = repository / ".cache" / "site"
    if not (folder / "index.html").is_file():
        pytest.skip("not run: the pages are not built (make docs)")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def visited(site):
    """Address and status of everything that a browser asked for on every page."""
    if BROWSER is None:
        pytest.skip("not run: no Chromium is installed (Debian package chromium)")
    from playwright.sync_api import sync_playwright

    folder, address = site
    asked, answers = set(), {}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        page = browser.new_page()
        page.set_default_timeout(1000 * SECONDS)
        page.on("request", lambda request: asked.add(request.url))
        page.on("response", lambda response: answers.update({response.url: response.status}))
        for path in sorted(folder.rglob("*.html")):
            page.goto(address + path.relative_to(folder).as_posix(), wait_until="load")
        page.goto(address + "index.html?q=reserve")
        page.wait_for_selector("[data-md-component=search-result] li", state="attached")
        browser.close()
    return asked, answers


def test_no_other_host_is_asked(site, visited):
    _, address = site
    asked, _ = visited

    assert len(asked) > 20
    assert [] == sorted(url for url in asked if not url.startswith((address, "data:", "blob:" + address)))


def test_everything_that_is_asked_for_is_there(visited):
    _, answers = visited

    assert {} == {url: status for url, status in answers.items() if status >= 400}
