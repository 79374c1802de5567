"""The walk of somebody with five minutes; every page as the first of a browser; small windows, dark rooms and keyboards."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.server import serving
from tests.pages.conftest import finish
from trainyard.store import Store
from trainyard.study.study import Study
from trainyard.traces import start
from ui.shell import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Visit = Callable[..., Page]
MOST_BYTES = {"compare": 800_000, "explore": 600_000}
"""Of a page view with the result of the sample; all other pages 300,000."""
_ORDER = ("compare", *(name for name in PAGES if name != "compare"))
"""A server that has shown nothing yet sees Explore first in the five minutes, Learn in the lessons and replays, Plan in its own test; here Compare."""
_FITS = "() => [document.documentElement, document.querySelector('[data-testid=stMain]')].every(part => part.scrollWidth <= part.clientWidth)"
_IDLE = "() => !document.querySelector('[data-testid=stApp][data-test-script-state=running], [data-testid=stSkeleton]')"


def drag(page: Page, strip: Locator, begin: float, end: float) -> None:
    strip.scroll_into_view_if_needed()
    strip.hover()
    box = strip.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * begin, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * end, y, steps=6)
    page.mouse.up()


@pytest.fixture(scope="module")
def sampled(store: Path) -> Study:
    """The sample, with its result in the store of this module."""
    kept: Any = SimpleNamespace(store=Store(store))
    study = start.sample_study()
    finish(kept, study)
    return study


def stored(store: Path) -> int:
    return len(list(store.rglob("manifest.json")))


def test_five_minutes(store: Path, visit: Visit, browser: Browser, tmp_path: Path) -> None:
    with serving(store) as first:
        page = visit(first)
        main, sidebar = page.get_by_test_id("stMain"), page.get_by_test_id("stSidebar")
        page.get_by_role("button", name="Run the sample").click()
        expect(sidebar.get_by_text("Up to date")).to_be_visible(timeout=60_000)
        expect(page).to_have_url(re.compile(r"/compare\?s="))
        # Until the last policy is there the headline is about those that are.
        expect(main.locator("h3").first).to_have_text(re.compile("^SRTF cuts mean JCT by .* against FIFO"))
        headline = main.locator("h3").first.inner_text()
        expect(main.locator("table.ty").first).to_contain_text("FIFO")
        # The strip has its place once everything below is drawn too.
        expect(main.get_by_text("Where does the time of a job go?")).to_be_visible()
        drag(page, main.locator(".js-plotly-plot").first, 0.5, 0.75)
        chip = main.get_by_role("button", name="✕")
        expect(chip).to_have_text(re.compile(r"day \d+ \d\d:\d\d to day \d+ \d\d:\d\d ✕"))
        told = chip.inner_text()
        page.get_by_role("link", name="Explore", exact=True).click()
        expect(page.locator("[class*=st-key-occupancy] .js-plotly-plot")).to_be_visible()
        expect(chip).to_have_text(told)
        page.get_by_test_id("stDataFrame").first.click(position={"x": 20, "y": 55})
        expect(main.get_by_text("Why it waited", exact=True)).to_be_visible()
        job = main.get_by_text(re.compile(r"^Job .* asked for"))
        asked = job.inner_text()
        link = _shared(page)
        assert "&t0=" in link
        _another_policy(page, headline)
        with page.expect_download() as waiting:
            sidebar.get_by_role("button", name="Report").click()
        waiting.value.save_as(tmp_path / "report.html")
        said = main.locator("h3").first.inner_text()
    with serving(store) as second:
        context = browser.new_context(viewport={"width": 1440, "height": 1000})
        private = context.new_page()
        private.goto(link.replace(first, second))
        again = private.get_by_test_id("stMain")
        expect(again.get_by_role("button", name="✕")).to_have_text(told)
        expect(again.get_by_text(re.compile(r"^Job .* asked for"))).to_have_text(asked)
        expect(private.get_by_test_id("stSidebar").get_by_text("Up to date")).to_be_visible()
        private.get_by_role("link", name="Compare", exact=True).click()
        expect(again.locator("h3").first).to_have_text(headline)
        again.get_by_role("button", name="✕").click()
        expect(again.get_by_role("button", name="✕")).to_have_count(0)
        expect(private).not_to_have_url(re.compile("t0="))
        context.close()
    _offline(browser, tmp_path / "report.html", said)


def _shared(page: Page) -> str:
    page.get_by_test_id("stSidebar").get_by_role("button", name="Share").click()
    link = page.get_by_test_id("stCode").filter(has_text="http").first.inner_text()
    page.keyboard.press("Escape")
    return link.strip()


def _another_policy(page: Page, headline: str) -> None:
    """Add a policy and run it: what was shown stays until the new result is there."""
    main, sidebar = page.get_by_test_id("stMain"), page.get_by_test_id("stSidebar")
    page.get_by_role("link", name="Policies", exact=True).click()
    main.get_by_text("SJF", exact=True).click()
    expect(sidebar.get_by_text("Changed since the last run")).to_be_visible()
    page.get_by_role("link", name="Compare", exact=True).click()
    expect(main.get_by_text("Shown: previous scenario")).to_be_visible()
    expect(main.locator("h3").first).to_have_text(headline)
    sidebar.get_by_role("button", name="Run", exact=True).click()
    table = main.locator("table.ty").first
    expect(table).to_contain_text("EASY backfilling")
    expect(table).to_contain_text("SJF")
    expect(sidebar.get_by_text("Up to date")).to_be_visible(timeout=60_000)
    expect(main.get_by_text("Shown: previous scenario")).to_have_count(0)


def _offline(browser: Browser, file: Path, headline: str) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_function("document.body.dataset.drawn > 0")
    expect(page.get_by_text(headline).first).to_be_visible()
    assert {url.partition(":")[0] for url in asked} <= {"file", "blob", "data"}
    context.close()


def test_every_page_is_light_and_the_first_that_a_browser_opens(sampled: Study, store: Path, visit: Visit) -> None:
    """On a server of its own, which has shown nothing before the first of them; the others are new sessions in the same browser."""
    received = [0]

    def count(page: Page) -> None:
        page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: received.__setitem__(0, received[0] + len(frame))))

    with serving(store) as fresh:
        page: Page | None = None
        for name in _ORDER:
            received[0] = 0
            address = f"{fresh}/{name if name != 'start' else ''}?s={sampled.pack()}"
            if page is None:
                page = visit(address, watch=count)
            else:
                page.goto(address)
            # Not the raw list of files that Streamlit shows when a page is run without app.py.
            expect(page.get_by_role("link", name="Policies", exact=True)).to_be_visible()
            expect(page.get_by_role("link", name=PAGES[name], exact=True)).to_have_attribute("aria-current", "page")
            expect(page.get_by_test_id("stSidebar").get_by_text("Up to date. Stored result")).to_be_visible(timeout=60_000)
            page.wait_for_function(_IDLE)
            assert 0 < received[0] < MOST_BYTES.get(name, 300_000), name


@pytest.mark.parametrize(("width", "scheme", "scale"), [(800, "light", 1), (720, "dark", 2)])
def test_small_windows_and_dark_rooms(sampled: Study, app: str, visit: Visit, width: int, scheme: str, scale: int) -> None:
    """720 px with two dots each are a window of 1440 px at 200 %."""
    page = visit(f"{app}/?s={sampled.pack()}", width=width, color_scheme=scheme, device_scale_factor=scale)
    for name, title in PAGES.items():
        if name != "start":
            _navigate(page, title)
        expect(page).to_have_url(re.compile(f"/{name if name != 'start' else ''}\\?"))
        page.wait_for_function(_IDLE)
        # A figure is as wide as usual until it has seen its place.
        page.wait_for_function(_FITS)
        dark = page.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor") == "rgb(16, 22, 29)"
        assert dark == (scheme == "dark")


def _navigate(page: Page, title: str) -> None:
    """Follow the navigation, wherever it is at this width."""
    link = page.get_by_role("link", name=title, exact=True)
    box = link.bounding_box()
    if box is None or box["x"] < 0:
        page.get_by_test_id("stExpandSidebarButton").click()
    link.click()


def test_keys_alone_lead_to_a_result(app: str, visit: Visit) -> None:
    page = visit(app)
    expect(page.get_by_role("button", name="Run the sample")).to_be_enabled()
    _tab_to(page, "Run the sample")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Up to date")).to_be_visible(timeout=60_000)
    expect(page.locator("table.ty").first).to_be_visible()
    _tab_to(page, "Policies")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Which schedulers?")
    expect(page.get_by_text("SJF", exact=True).first).to_be_visible()
    _tab_to(page, "SJF")
    page.keyboard.press("Space")
    expect(page.get_by_test_id("stSidebar").get_by_text("Changed since the last run")).to_be_visible()


def _tab_to(page: Page, name: str) -> None:
    # What is drawn while one goes from field to field takes the focus along; then once more.
    page.wait_for_function(_IDLE)
    for _ in range(160):
        page.keyboard.press("Tab")
        if page.evaluate("(document.activeElement.closest('label') || document.activeElement).innerText || ''").strip().endswith(name):
            return
    raise AssertionError(f"Tab never reaches '{name}'")


def test_two_browsers_at_once_are_one_run(app: str, store: Path, visit: Visit) -> None:
    study = start.sample_study("tiny")
    study = replace(study, base=replace(study.base, seed=3))
    pages = [visit(f"{app}/compare?s={study.pack()}", width=width) for width in (1440, 1000)]
    before = stored(store)
    for page in pages:
        page.get_by_role("button", name="Run this scenario").click(no_wait_after=True)
    for page in pages:
        expect(page.get_by_text("Up to date")).to_be_visible(timeout=60_000)
        expect(page.locator("table.ty").first).to_be_visible()
    assert stored(store) - before == len(study.allocators)
