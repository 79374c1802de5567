from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.server import FLAGS, chromium, serving
from tests.browser.waiting import ready
from tests.pages.conftest import finish
from trainyard.store import Store
from trainyard.study.study import Study
from trainyard.traces import new_study

expect.set_options(timeout=120_000)
Scheme = Literal["light", "dark"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        reason = "no chromium is installed (Debian, Ubuntu: apt-get install chromium)"
        if os.environ.get("TRAINYARD_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=[*FLAGS, "--process-per-site"])
        yield made
        made.close()


def fill(place: Path, *studies: Study) -> None:
    """Put the results of studies into a store; a worker computes each of them once."""
    pool: Any = SimpleNamespace(store=Store(place))
    for study in studies:
        finish(pool, study)


@pytest.fixture(scope="session")
def sample_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with the result of the sample, for all modules of this worker.

    A module may add results; nothing may depend on what another module added.
    """
    place = tmp_path_factory.mktemp("sample") / "store"
    fill(place, new_study.sample_study())
    return place


@pytest.fixture(scope="session")
def sample_app(sample_store: Path, browser: Browser) -> Iterator[str]:
    """Yield the address of the server that modules share which need no store of their own."""
    del browser
    with serving(sample_store) as address:
        yield address


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("app") / "store"


@pytest.fixture(scope="module")
def app(store: Path, browser: Browser) -> Iterator[str]:
    # The browser comes first: without one no server needs to start.
    del browser
    with serving(store) as address:
        yield address


class Profile:
    """A browser of its own, whose cookies and storage are cleared for each page that it opens.

    Its first tab stays open: pages of one site share a process, so what Chromium compiled of
    Streamlit and Plotly is compiled once for all tests of a worker.
    """

    def __init__(self, browser: Browser) -> None:
        self.context = browser.new_context(accept_downloads=True)
        self.context.set_default_timeout(120_000)
        self._tab = self.context.new_page()
        self._devtools = self.context.new_cdp_session(self._tab)

    def open_page(self, address: str, width: int, scheme: Scheme) -> Page:
        """Return an empty page without any trace of the test before."""
        origin = "://".join(urlsplit(address)[:2])
        if not self._tab.url.startswith(f"{origin}/"):
            self._tab.goto(f"{origin}/_stcore/health")
        self.context.clear_cookies()
        self._devtools.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
        page = self.context.new_page()
        page.set_viewport_size({"width": width, "height": 1000})
        page.emulate_media(color_scheme=scheme)
        return page


@pytest.fixture(scope="session")
def profiles() -> list[Profile]:
    """The browsers of this worker: the first page of a test opens in the first, and so on."""
    return []


@pytest.fixture
def visit(browser: Browser, profiles: list[Profile]) -> Iterator[Callable[..., Page]]:
    """Open pages of a given width, each in a browser of its own.

    At the end none may have asked another host for anything, or shown a traceback.
    """
    pages: list[Page] = []
    strangers: list[str] = []

    def note(url: str) -> None:
        if not url.startswith(("http://127.0.0.1", "data:", "blob:", "file:")):
            strangers.append(url)

    def go(
        address: str,
        width: int = 1440,
        watch: Callable[[Page], None] | None = None,
        color_scheme: Scheme = "light",
    ) -> Page:
        if len(pages) == len(profiles):
            profiles.append(Profile(browser))
        page = profiles[len(pages)].open_page(address, width, color_scheme)
        pages.append(page)
        page.on("request", lambda request: note(request.url))
        if watch is not None:
            watch(page)
        page.goto(address)
        ready(page)
        return page

    yield go
    try:
        for page in pages:
            assert page.locator("[data-testid=stException], .ty-broken").count() == 0
            assert "Traceback" not in page.inner_text("body")
    finally:
        for page in pages:
            page.close()
    assert strangers == []
