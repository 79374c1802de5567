"""The walk of somebody with five minutes; every page as the first of a browser; small windows, dark
rooms and keyboards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import Scheme
from tests.browser.measuring import FITS, low_contrast, misplaced
from tests.browser.server import serving
from tests.browser.test_main_journeys import drag_across
from tests.browser.waiting import idle
from trainyard.traces import new_study
from ui.layout import PAGES, WITHOUT_BAR

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Visit = Callable[..., Page]
MAX_BYTES = {"compare": 800_000, "explore": 600_000}
"""Of a page view with the result of the sample; all other pages 300,000."""
_ORDER = ("compare", *(name for name in PAGES if name != "compare"))
"""A server that has shown nothing yet sees Explore first in the five minutes, Learn in the lessons
and replays, Plan in its own test; here Compare.
"""


def count_runs(store: Path, seed: int) -> int:
    """Return how many runs of a seed a store holds."""
    runs = [json.loads(path.read_text()) for path in (store / "runs").rglob("manifest.json")]
    return sum(run["scenario"]["seed"] == seed for run in runs)


def test_five_minutes(store: Path, visit: Visit, browser: Browser, tmp_path: Path) -> None:
    with serving(store) as first:
        page = visit(first)
        main, bar = page.get_by_test_id("stMain"), page.locator(".st-key-bar")
        page.get_by_role("button", name="Run the sample").click()
        expect(bar.get_by_text("Up to date")).to_be_visible()
        expect(page).to_have_url(re.compile(r"/compare\?(.*&)?s="))
        # Until the last policy is there the headline is about those that are.
        expect(main.locator("h1.ty-answer")).to_have_text(
            re.compile("^With SRTF the average job completes in ")
        )
        headline = main.locator("h1.ty-answer").inner_text()
        expect(main.locator(".ty-ledger")).to_contain_text("FIFO")
        expect(main.locator(".st-key-done_within .trace").first).to_be_attached()
        idle(page)  # the figure of the last policy takes the place of the one before
        drag_across(page, main.locator(".st-key-over_time .js-plotly-plot"), 0.5, 0.75)
        window = main.locator(".st-key-compare_chip button").first
        expect(window).to_have_text(re.compile(r"Day \d+, \d\d:\d\d – day \d+, \d\d:\d\d"))
        told = window.inner_text().partition("\n")[0].strip()
        zoomed = re.compile("^In this window, with SRTF the average job completes in ")
        expect(main.locator("h1.ty-answer")).to_have_text(zoomed)
        page.get_by_role("link", name="Explore", exact=True).click()
        expect(page.locator(".st-key-machines .js-plotly-plot")).to_be_visible()
        expect(main.get_by_text(told).first).to_be_visible()
        job, link = _first_waiting(page)
        shared = _shared(page)
        assert len(shared) <= 300
        expect(visit(shared)).to_have_url(re.compile("[?&]t0="))
        _another_policy(page, zoomed)
        main.get_by_role("button", name="✕").click()
        expect(main.locator("h1.ty-answer")).not_to_contain_text("In this window")
        with page.expect_download() as waiting:
            bar.get_by_role("button", name="Share").click()
            page.get_by_role("button", name="Report (HTML)").first.click()
        waiting.value.save_as(tmp_path / "report.html")
        said = main.locator("h1.ty-answer").inner_text()
    with serving(store) as second:
        private = visit(link.replace(first, second))
        again = private.get_by_test_id("stMain")
        expect(again.get_by_text(told).first).to_be_visible()
        drawer = private.get_by_role("dialog")
        expect(drawer.get_by_role("heading").first).to_have_text(job)
        private.keyboard.press("Escape")
        expect(drawer).to_have_count(0)
        expect(private.locator(".st-key-bar").get_by_text("Up to date")).to_be_visible()
        private.get_by_role("link", name="Compare", exact=True).click()
        expect(again.locator("h1.ty-answer")).to_have_text(zoomed)
        again.get_by_role("button", name="✕").click()
        expect(again.get_by_role("button", name="✕")).to_have_count(0)
        expect(again.locator("h1.ty-answer")).to_have_text(headline)
        expect(private).not_to_have_url(re.compile("t0="))
    _offline(browser, tmp_path / "report.html", said)


def _first_waiting(page: Page) -> tuple[str, str]:
    """Open the first job that waits: its title, and the address that leads to it."""
    idle(page)
    page.locator(".dvn-scroller").first.click(position={"x": 20, "y": 55})
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_text(re.compile(r"^SRTF: \S"))).to_be_visible()
    title, link = drawer.get_by_role("heading").first.inner_text(), page.url
    assert re.search("[?&]t0=", link)
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    expect(page).not_to_have_url(re.compile("job_id="))
    return title, link


def _shared(page: Page) -> str:
    page.locator(".st-key-share button").click()
    link = page.get_by_label("Link", exact=True).input_value()
    page.keyboard.press("Escape")
    return link.strip()


def _another_policy(page: Page, headline: re.Pattern[str]) -> None:
    """Add a policy and run it: what was shown stays until the new result is there."""
    main, bar = page.get_by_test_id("stMain"), page.locator(".st-key-bar")
    page.get_by_role("link", name="Policies", exact=True).click()
    page.locator("#policy-sjf .tick").click()
    expect(bar.get_by_text("1 policy not run yet")).to_be_visible()
    page.get_by_role("link", name="Compare", exact=True).click()
    expect(main.locator("h1.ty-answer")).to_have_text(headline)
    expect(bar.get_by_text("1 policy not run yet")).to_be_visible()
    bar.get_by_role("button", name="Run", exact=True).click()
    table = main.locator(".ty-ledger")
    expect(table).to_contain_text("EASY backfilling")
    expect(table).to_contain_text("SJF")
    expect(bar.get_by_text("Up to date")).to_be_visible()


def _offline(browser: Browser, file: Path, headline: str) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    # The report allows no eval, which `wait_for_function` needs.
    expect(page.locator("body")).to_have_attribute("data-drawn", re.compile("[1-9]"))
    expect(page.get_by_text(headline).first).to_be_visible()
    assert {url.partition(":")[0] for url in asked} <= {"file", "blob", "data"}
    context.close()


def test_every_page_is_light_and_the_first_that_a_browser_opens(
    sample_store: Path, visit: Visit
) -> None:
    """On a server of its own, which has shown nothing before the first of them; the others are new
    sessions in the same browser.
    """
    received = [0]

    def count(page: Page) -> None:
        page.on(
            "websocket",
            lambda socket: socket.on(
                "framereceived", lambda frame: received.__setitem__(0, received[0] + len(frame))
            ),
        )

    with serving(sample_store) as fresh:
        page: Page | None = None
        for name in _ORDER:
            received[0] = 0
            address = (
                f"{fresh}/{name if name != 'start' else ''}?s={new_study.sample_study().pack()}"
            )
            if page is None:
                page = visit(address, watch=count)
            else:
                page.goto(address)
            # Not the raw list of files that Streamlit shows when a page is run without app.py.
            pages = page.locator(".st-key-navigation")
            expect(pages.get_by_role("link", name="Policies", exact=True)).to_be_visible()
            link = pages.get_by_role("link", name=PAGES[name], exact=True)
            expect(link).to_have_attribute("aria-current", "page")
            status = page.locator(".st-key-bar").get_by_text("Up to date")
            expect(status).to_have_count(int(name not in WITHOUT_BAR))
            idle(page)
            assert 0 < received[0] < MAX_BYTES.get(name, 300_000), name


@pytest.mark.parametrize(("width", "scheme", "scale"), [(800, "light", 1), (720, "dark", 2)])
def test_small_windows_and_dark_rooms(
    sample_app: str, visit: Visit, width: int, scheme: Scheme, scale: int
) -> None:
    """720 px with two dots each are a window of 1440 px at 200 %."""

    def scale_dots(page: Page) -> None:
        """Draw each pixel with `scale` dots in each direction."""
        metrics = {"width": width, "height": 1000, "deviceScaleFactor": scale, "mobile": False}
        page.context.new_cdp_session(page).send("Emulation.setDeviceMetricsOverride", metrics)

    page = visit(
        f"{sample_app}/?s={new_study.sample_study().pack()}",
        width=width,
        color_scheme=scheme,
        watch=scale_dots,
    )
    assert page.evaluate("[innerWidth, devicePixelRatio]") == [width, scale]
    for name, title in PAGES.items():
        if name != "start":
            page.get_by_role("link", name=title, exact=True).click()
        expect(page).to_have_url(re.compile(f"/{name if name != 'start' else ''}\\?"))
        idle(page)
        # A figure is as wide as usual until it has seen its place.
        page.wait_for_function(FITS)
        dark = (
            page.evaluate(
                "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
            )
            == "rgb(16, 22, 29)"
        )
        assert dark == (scheme == "dark")
        assert low_contrast(page) == [], name
        assert misplaced(page) == [], name


def test_keys_alone_lead_to_a_result(sample_app: str, visit: Visit) -> None:
    page = visit(sample_app)
    expect(page.get_by_role("button", name="Run the sample")).to_be_enabled()
    _tab_to(page, page.get_by_role("button", name="Run the sample"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("Up to date")).to_be_visible()
    expect(page.locator(".ty-ledger")).to_be_visible()
    # The button that was pressed is gone.
    page.wait_for_function("document.activeElement.closest('.st-key-status')")
    _open_a_job(page)
    share = page.locator(".st-key-share button")
    _tab_to(page, share)
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.closest('[data-testid=stPopoverBody]')")
    _tab_to(page, page.locator(".ty-link button"))
    page.keyboard.press("Enter")
    expect(page.locator(".ty-link button")).to_have_text("Link copied")
    page.keyboard.press("Escape")
    # The row of pages is one stop, with arrows inside.
    _tab_to(page, page.get_by_role("link", name="Compare", exact=True))
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("link", name="Policies", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1").first).to_have_text(re.compile("policies compared"))
    row = page.locator("#policy-sjf")
    expect(row).to_be_visible()
    # The list is one stop, with arrows inside.
    _tab_to(page, page.locator(".ty-policies .list"))
    page.keyboard.press("Home")
    for _ in range(page.locator(".ty-policies .row").count()):
        if "at" in str(row.get_attribute("class")).split():
            break
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(row).to_have_attribute("aria-selected", "true")
    expect(page.locator(".st-key-chips").get_by_text("5 policies")).to_be_visible()


def _open_a_job(page: Page) -> None:
    """Open the second job of the table, and close it again: the table has the focus once more."""
    table = page.get_by_test_id("stDataFrame").first
    _tab_to(page, table.get_by_test_id("data-grid-canvas"))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+Space")
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_text(re.compile(r"^SRTF: \S"))).to_be_visible()
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    page.wait_for_function("document.activeElement.closest('[class*=st-key-job_rows-]')")


def _tab_to(page: Page, target: Locator) -> None:
    # What is drawn while one goes from field to field takes the focus along; then once more.
    idle(page)
    for _ in range(160):
        page.keyboard.press("Tab")
        if target.evaluate("it => it.contains(document.activeElement)"):
            return
    raise AssertionError(f"Tab never reaches {target}")


def test_two_browsers_at_once_are_one_run(
    sample_app: str, sample_store: Path, visit: Visit
) -> None:
    study = new_study.sample_study("tiny")
    study = replace(study, base=replace(study.base, seed=3))
    pages = [visit(f"{sample_app}/compare?s={study.pack()}", width=width) for width in (1440, 1000)]
    for page in pages:
        page.get_by_role("button", name="Run this scenario").click(no_wait_after=True)
    for page in pages:
        expect(page.get_by_text("Up to date")).to_be_visible()
        expect(page.locator(".ty-ledger")).to_be_visible()
    assert count_runs(sample_store, 3) == len(study.allocators)
