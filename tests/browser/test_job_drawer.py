"""The drawer of a job in a real browser: how it opens, where it stands, how it is left."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Locator, Page, expect

from sim.params import Spec
from tests.browser.test_compare import stored
from tests.browser.waiting import idle
from trainyard.store import Store
from trainyard.study.branch import BranchPoint, FromHere
from trainyard.study.study import Study
from trainyard.traces import start
from ui.planning import from_here

pytestmark = [pytest.mark.browser, pytest.mark.slow]
WIDTH_PX = 450
OWN = re.compile(r"(ahead by submission|first by submission|shorter job|less time left)")
Visit = Callable[..., Page]


def compared(app: str, visit: Visit, **more: Any) -> Page:
    page = visit(f"{app}/start", **more)
    page.get_by_role("button", name="Run the sample").first.click()
    page.wait_for_url("**/compare**")
    expect(page.get_by_text("Up to date")).to_be_attached()
    idle(page)
    return page


def click_row(page: Page, at: int, table: Locator | None = None) -> Locator:
    """Click a row of a table of jobs, the first of the page, and return the drawer."""
    # Closing it draws the table anew.
    expect(page).not_to_have_url(re.compile(r"[?&]job_id="))
    idle(page)
    table = table or page.get_by_test_id("stDataFrame").first
    table.scroll_into_view_if_needed()
    table.click(position={"x": 20, "y": 55 + 35 * at})
    return page.get_by_role("dialog")


def open_and_leave(page: Page, drawer: Locator) -> None:
    """Wait for the reason in a drawer and leave it."""
    expect(drawer.get_by_text(re.compile(r"\w+: \S")).first).to_be_visible()
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)


def test_a_job_opens_at_the_right_with_the_policy_s_reason(app: str, visit: Visit) -> None:
    page = compared(app, visit)
    open_and_leave(page, click_row(page, 1))
    drawer = click_row(page, 0)
    expect(drawer.get_by_text(OWN).first).to_be_visible()
    # It slides in.
    page.wait_for_function(
        "it => Math.abs(it.getBoundingClientRect().right - innerWidth) < 1",
        arg=drawer.element_handle(),
    )
    box = drawer.bounding_box()
    assert box is not None
    assert abs(box["width"] - WIDTH_PX) <= 2
    expect(page).to_have_url(re.compile(r"[?&]job_id=\d+"))
    # The keyboard is inside it, and Escape leads back.
    assert drawer.evaluate("it => it.contains(document.activeElement)")
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    expect(page).not_to_have_url(re.compile(r"[?&]job_id="))
    # The same row opens it again.
    expect(click_row(page, 0)).to_be_visible()


def test_a_click_on_any_cell_opens_it_and_enter_too(app: str, visit: Visit) -> None:
    page = compared(app, visit)
    table = page.locator("[class*=st-key-job_rows-] [data-testid=stDataFrame]")
    table.scroll_into_view_if_needed()
    drawer = page.get_by_role("dialog")
    table.click(position={"x": 300, "y": 90})
    expect(drawer).to_be_visible()
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    expect(page).not_to_have_url(re.compile(r"[?&]job(_id)?="))
    idle(page)
    page.get_by_placeholder("Job or user").focus()
    for _ in range(8):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") in ("CANVAS", "TD"):
            break
    page.wait_for_function("document.activeElement.closest('td[role=gridcell]')")
    page.keyboard.press("Enter")
    expect(drawer).to_be_visible()


def test_explore_opens_it_as_well(app: str, visit: Visit) -> None:
    page = compared(app, visit)
    page.get_by_role("link", name="Explore", exact=True).click()
    idle(page)
    open_and_leave(page, click_row(page, 0))


@pytest.fixture(scope="module")
def branched(store: Path) -> FromHere:
    """The sample under FIFO, with SRTF from the sixth day on: both runs are stored."""
    study = start.sample_study()
    fifo = [spec.name for spec in study.allocators].index("fifo")
    recipe = FromHere(study, fifo, BranchPoint(432_000.0, Spec("srtf")))
    for scenario in (recipe.branch.was, recipe.branch.here):
        stored(Store(store), Study(scenario, (scenario.allocator,)))
    stored(Store(store), replace(study, allocators=(study.allocators[fifo],), baseline=0))
    return recipe


def test_plan_opens_it_as_well(app: str, visit: Visit, branched: FromHere) -> None:
    asked = from_here.parameters(branched) | {"s": branched.study.pack(), "r": "1"}
    page = visit(f"{app}/plan?{urlencode(asked)}")
    jobs = page.get_by_test_id("stDataFrame").last
    expect(jobs).to_be_visible()
    open_and_leave(page, click_row(page, 1, jobs))
    drawer = click_row(page, 0, jobs)
    expect(drawer.get_by_text(OWN).first).to_be_visible()
    expect(drawer).to_be_in_viewport(ratio=1)


def test_the_timeline_shows_the_life_of_the_job(app: str, visit: Visit) -> None:
    page = compared(app, visit)
    drawer = click_row(page, 0)
    drawer.get_by_role("button", name="Show on the timeline").click()
    expect(drawer).to_have_count(0)
    expect(page).to_have_url(re.compile(r"[?&]t0=\d+.*[?&]t1=\d+"))
    expect(page.locator(".st-key-over_time .shapelayer path[style*='dash']")).to_have_count(2)


def test_a_link_opens_it_and_one_to_no_job_is_a_line(app: str, visit: Visit) -> None:
    page = compared(app, visit)
    other = visit(f"{page.url}&job_id=766")
    expect(other.get_by_role("dialog").get_by_role("heading", name="Job 766")).to_be_visible()
    expect(visit(f"{page.url}&job=765")).to_have_url(re.compile(r"[?&]job_id=766"))
    other.reload()
    expect(other.get_by_role("dialog").get_by_role("heading", name="Job 766")).to_be_visible()
    gone = visit(f"{page.url}&job_id=5000")
    expect(gone.get_by_text("The address names a job that is not in this trace")).to_be_visible()
    expect(gone.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("width", [390, 800])
def test_on_a_small_screen_nothing_is_cut(app: str, visit: Visit, width: int) -> None:
    page = compared(app, visit)
    small = visit(f"{page.url}&job_id=766", width=width)
    drawer = small.get_by_role("dialog")
    expect(drawer.get_by_text("Waited to start")).to_be_visible()
    box = drawer.bounding_box()
    assert box is not None
    assert box["width"] == pytest.approx(min(width, WIDTH_PX), abs=2)
    assert small.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert drawer.evaluate("it => it.scrollWidth <= it.clientWidth + 1")
