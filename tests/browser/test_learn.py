"""Paper replays in a real browser: the link on a fresh server, a run that is seen to its end, and
what a hasty user does to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Scheme
from tests.browser.measuring import low_contrast, misplaced
from tests.browser.server import serving
from tests.browser.waiting import idle, ready
from trainyard.labs.replays.reading import load

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Visit = Callable[..., Page]

QUICK = "ibm-drop"
LINK = f"/learn?tab=replays&replay={QUICK}&seeds=1"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_tab_can_be_read(sample_app: str, visit: Visit, scheme: Scheme) -> None:
    page = visit(f"{sample_app}/learn?tab=lessons", color_scheme=scheme)
    for tab in ("lessons", "replays", "glossary", "limits"):
        if tab != "lessons":
            page.goto(f"{sample_app}/learn?tab={tab}")
            ready(page)
        expect(page.get_by_role("tab", selected=True)).to_have_text(re.compile(tab, re.IGNORECASE))
        idle(page)
        assert low_contrast(page) == [], tab
        assert misplaced(page) == [], tab


def title(page: Page) -> None:
    expect(page.get_by_test_id("stMain").locator("h3").first).to_have_text(load(QUICK).title)


def test_a_link_to_a_replay_on_a_fresh_server_and_its_run(store: Path, visit: Visit) -> None:
    with serving(store) as fresh:
        page = visit(fresh + LINK)
        title(page)
        # Not the raw list of files that Streamlit shows when a page is run without app.py.
        expect(page.get_by_role("link", name="Policies", exact=True)).to_be_visible()
        expect(page).to_have_url(re.compile(rf"replay={QUICK}.*s="))
        expect(page.get_by_text("Not run yet with 1 seed")).to_be_visible()
        page.get_by_role("button", name="Run this replay").dblclick()
        table = page.locator("table.ty").first
        expect(table).to_be_visible(timeout=120_000)
        expect(table).to_contain_text(re.compile("in the range|outside the range|undecided"))
        # The table fills while the replay runs; the figures come when it is complete.
        expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=120_000)
        shown = table.inner_text()
        slider = page.get_by_role("slider").first
        rate = page.get_by_text(re.compile(r"jobs/min: means over"))
        before = rate.inner_text()
        slider.press("ArrowRight")
        expect(rate).not_to_have_text(before)
    with serving(store) as later:
        page = visit(later + LINK)
        expect(page.locator("table.ty").first).to_be_visible()
        assert page.locator("table.ty").first.inner_text() == shown
        expect(page.get_by_role("button", name="Run this replay")).to_have_count(0)


def test_reload_and_back_find_the_run_again_and_cancel_ends_it(
    sample_app: str, visit: Visit
) -> None:
    page = visit(f"{sample_app}/learn?tab=replays&replay=ibm-queue&seeds=50")
    page.get_by_role("button", name="Run this replay").click()
    bar = page.get_by_test_id("stProgress")
    expect(bar).to_be_visible()
    page.reload()
    expect(bar).to_be_visible()
    page.get_by_role("link", name="Trace", exact=True).click()
    expect(page.locator("h1").first).to_contain_text("1,200 jobs")
    expect(bar).to_have_count(0)
    page.go_back()
    expect(bar).to_be_visible()
    expect(page).to_have_url(re.compile(r"replay=ibm-queue"))
    page.get_by_role("button", name="Cancel").click()
    expect(bar).to_have_count(0)
    expect(page.get_by_role("button", name="Run this replay")).to_be_enabled()
