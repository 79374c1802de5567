"""The drawer of a job in a real browser: how it opens, where it stands, how it is left."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Locator, Page, expect

from sim.params import Spec
from tests.browser.conftest import fill
from tests.browser.waiting import idle
from trainyard.study.branch_point import BranchPoint, FromHere
from trainyard.study.study import Study
from trainyard.traces import new_study
from ui.planning import mid_run_switch

pytestmark = [pytest.mark.browser, pytest.mark.slow]
WIDTH_PX = 450
OWN = re.compile(r"(ahead by submission|first by submission|shorter job|less time left)")
Visit = Callable[..., Page]


def compared(app: str, visit: Visit, more: str = "") -> Page:
    """Return Compare with the stored results of the sample, drawn to the end."""
    page = visit(f"{app}/compare?s={new_study.sample_study().pack()}&r=1{more}")
    expect(page.locator(".ty-ledger")).to_be_visible()
    idle(page)
    return page


def click_row(page: Page, at: int, table: Locator | None = None) -> Locator:
    """Click a row of a table of jobs, the first of the page, and return the drawer."""
    # Closing it draws the table anew.
    expect(page).not_to_have_url(re.compile(r"[?&]job_id="))
    idle(page)
    table = table or page.get_by_test_id("stDataFrame").first
    table.locator(".dvn-scroller").click(position={"x": 20, "y": 55 + 35 * at})
    return page.get_by_role("dialog")


def open_and_leave(page: Page, drawer: Locator) -> None:
    """Wait for the reason in a drawer and leave it."""
    expect(drawer.get_by_text(re.compile(r"\w+: \S")).first).to_be_visible()
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)


def test_every_way_to_a_job_opens_it_at_the_right_with_the_policy_s_reason(
    sample_app: str, visit: Visit
) -> None:
    page = compared(sample_app, visit)
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
    open_and_leave(page, click_row(page, 0))
    # So does any cell, and Enter.
    expect(page).not_to_have_url(re.compile(r"[?&]job(_id)?="))
    idle(page)
    table = page.locator("[class*=st-key-job_rows-] [data-testid=stDataFrame]")
    table.click(position={"x": 300, "y": 90})
    open_and_leave(page, drawer)
    expect(page).not_to_have_url(re.compile(r"[?&]job(_id)?="))
    idle(page)
    page.get_by_placeholder("Job or user").focus()
    for _ in range(8):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") in ("CANVAS", "TD"):
            break
    page.wait_for_function("document.activeElement.closest('td[role=gridcell]')")
    page.keyboard.press("Enter")
    # The timeline shows the life of the job, and Explore opens the drawer as well.
    drawer.get_by_role("button", name="Show on the timeline").click()
    expect(drawer).to_have_count(0)
    expect(page).to_have_url(re.compile(r"[?&]t0=\d+.*[?&]t1=\d+"))
    expect(page.locator(".st-key-over_time .shapelayer path[style*='dash']")).to_have_count(2)
    page.get_by_role("link", name="Explore", exact=True).click()
    expect(page.locator(".st-key-machines .js-plotly-plot")).to_be_visible()
    open_and_leave(page, click_row(page, 0))


@pytest.fixture(scope="module")
def branched(sample_store: Path) -> FromHere:
    """The sample under FIFO, with SRTF from the sixth day on: both runs are stored."""
    study = new_study.sample_study()
    fifo = [spec.name for spec in study.allocators].index("fifo")
    recipe = FromHere(study, fifo, BranchPoint(432_000.0, Spec("srtf")))
    both = (recipe.branch.was, recipe.branch.here)
    fill(
        sample_store,
        *(Study(scenario, (scenario.allocator,)) for scenario in both),
        replace(study, allocators=(study.allocators[fifo],), baseline=0),
    )
    return recipe


def test_plan_opens_it_as_well(sample_app: str, visit: Visit, branched: FromHere) -> None:
    asked = mid_run_switch.url_parameters(branched) | {"s": branched.study.pack(), "r": "1"}
    page = visit(f"{sample_app}/plan?{urlencode(asked)}")
    jobs = page.get_by_test_id("stDataFrame").last
    expect(jobs).to_be_visible()
    open_and_leave(page, click_row(page, 1, jobs))
    drawer = click_row(page, 0, jobs)
    expect(drawer.get_by_text(OWN).first).to_be_visible()
    expect(drawer).to_be_in_viewport(ratio=1)


def test_a_link_opens_it_at_every_width_and_one_to_no_job_is_a_line(
    sample_app: str, visit: Visit
) -> None:
    page = compared(sample_app, visit, "&job_id=766")
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_role("heading", name="Job 766")).to_be_visible()
    for width in (800, 390):
        page.set_viewport_size({"width": width, "height": 1000})
        page.reload()
        expect(drawer.get_by_role("heading", name="Job 766")).to_be_visible()
        expect(drawer.get_by_text("Waited to start")).to_be_visible()
        box = drawer.bounding_box()
        assert box is not None
        assert box["width"] == pytest.approx(min(width, WIDTH_PX), abs=2)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert drawer.evaluate("it => it.scrollWidth <= it.clientWidth + 1")
    address = page.url.partition("&job_id=")[0]
    assert "job_id" not in address
    page.goto(f"{address}&job=765")
    expect(page).to_have_url(re.compile(r"[?&]job_id=766"))
    page.goto(f"{address}&job_id=5000")
    expect(page.get_by_text(", which is not in this trace")).to_be_visible()
    expect(drawer).to_have_count(0)
