from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.server import FLAGS, chromium, serving
from tests.browser.waiting import ready

expect.set_options(timeout=120_000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        reason = "no chromium is installed (Debian, Ubuntu: apt-get install chromium)"
        if os.environ.get("TRAINYARD_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield made
        made.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("app") / "store"


@pytest.fixture(scope="module")
def app(store: Path, browser: Browser) -> Iterator[str]:
    # The browser comes first: without one no server needs to start.
    del browser
    with serving(store) as address:
        yield address


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages of a given width; at the end none may have asked another host for anything, or
    shown a traceback.
    """
    pages: list[Page] = []
    strangers: list[str] = []

    def note(url: str) -> None:
        if not url.startswith(("http://127.0.0.1", "data:", "blob:", "file:")):
            strangers.append(url)

    def go(
        address: str, width: int = 1440, watch: Callable[[Page], None] | None = None, **more: Any
    ) -> Page:
        page = browser.new_page(
            viewport={"width": width, "height": 1000}, accept_downloads=True, **more
        )
        page.set_default_timeout(120_000)
        page.on("request", lambda request: note(request.url))
        if watch is not None:
            watch(page)
        page.goto(address)
        ready(page)
        pages.append(page)
        return page

    yield go
    for page in pages:
        assert page.locator("[data-testid=stException], .ty-broken").count() == 0
        assert "Traceback" not in page.inner_text("body")
        page.close()
    assert strangers == []
