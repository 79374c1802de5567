"""The Plan page in a real browser: the cheapest purchase for a wait, kept by a reload and by a link
on a server that has begun anew; what if from here on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.measuring import low_contrast, misplaced
from tests.browser.server import serving
from tests.browser.waiting import idle

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Visit = Callable[..., Page]
ANSWER = re.compile(
    r"^You own 4 A100 nodes\. For 95 % of waits under 1 h: FIFO needs \d+ T4 nodes"
    r" \(\+\$[\d,]+ a month\), SRTF none\.$"
)
RING = """
  const chart = document.querySelector('.js-plotly-plot');
  chart.scrollIntoView({block: 'center', behavior: 'instant'});
  const at = chart.data.findIndex(trace => trace.marker?.symbol === 'circle-open');
  const {xaxis, yaxis} = chart._fullLayout, box = chart.getBoundingClientRect();
  const ring = chart.calcdata[at][0];
  return {
    mix: chart.data[at].customdata[0][0],
    x: box.left + xaxis._offset + xaxis.c2p(ring.x),
    y: box.top + yaxis._offset + yaxis.c2p(ring.y),
  };
"""
"""The mix and the place in the page of the first ring, which is FIFO's."""


def wide(page: Page) -> None:
    """Nothing is wider than the window."""
    sizes = page.evaluate(
        "[document.documentElement.scrollWidth,"
        " document.querySelector('[data-testid=stMain]').scrollWidth, innerWidth]"
    )
    assert max(sizes[:2]) <= sizes[2]


def test_the_cheapest_purchase_for_a_wait_of_an_hour(
    sample_app: str, sample_store: Path, visit: Visit
) -> None:
    page = visit(sample_app)
    page.get_by_role("link", name="Plan", exact=True).click()
    expect(page.get_by_text("Recorded schedule is left out")).to_be_visible()
    expect(page.get_by_text(re.compile(r"^About 93 runs, [\d.]+ (s|min)\.$"))).to_be_visible()
    main, answer = page.get_by_test_id("stMain"), page.get_by_role("heading", level=1).first
    expect(main.locator(".js-plotly-plot")).to_have_count(0)
    budget = main.get_by_label("Budget", exact=True)
    budget.fill("$30,000 a month")
    budget.press("Enter")
    expect(page.get_by_text(re.compile(r"^About 45 runs, "))).to_be_visible()
    page.get_by_role("button", name="Search", exact=True).click()
    expect(answer).to_have_text(ANSWER, timeout=240_000)
    expect(main.get_by_test_id("stProgress")).to_have_count(0)
    expect(main.locator(".js-plotly-plot")).to_have_count(1)
    idle(page)
    assert low_contrast(page) == []
    assert misplaced(page) == []
    told = answer.inner_text()
    page.reload()
    expect(answer).to_have_text(told)
    expect(page.get_by_role("button", name="Search", exact=True)).to_have_count(0)
    path = page.url.removeprefix(sample_app)
    assert "q=" in path
    with serving(sample_store) as fresh:
        again = visit(fresh + path, width=800)
        expect(again.get_by_role("heading", level=1).first).to_have_text(told)
        wide(again)
        again.get_by_role("tab", name="Sweep").click()
        expect(
            again.get_by_text(re.compile(r"^(\d+ left of )?27 runs \(9 points × 3 policies\)"))
        ).to_be_visible()
        idle(again)
        again.get_by_role("button", name="Sweep", exact=True).click()
        again.get_by_role("button", name="Cancel").click()
        expect(
            again.get_by_text("The results below use").or_(again.get_by_text("Already stored"))
        ).to_be_visible()
        wide(again)
        again.get_by_role("tab", name="Buy").click()
        expect(again.locator(".js-plotly-plot .scatterlayer")).to_be_visible()
        idle(again)
        ring = again.evaluate(f"() => {{{RING}}}")
        again.mouse.move(ring["x"], ring["y"])
        again.mouse.click(ring["x"], ring["y"])
        expect(again).to_have_url(re.compile("/compare"))
        gpus = 8 * sum(int(count) for count in ring["mix"].split(","))
        expect(again.get_by_role("button", name=re.compile(f"· {gpus} GPUs"))).to_be_visible()


def test_a_rack_is_lost_on_the_fourth_day_and_the_library_brings_it_back(
    sample_app: str, visit: Visit
) -> None:
    page = visit(sample_app)
    page.get_by_role("button", name="Run the sample").click()
    expect(page).to_have_url(re.compile("/compare"))
    expect(page.locator(".st-key-bar").get_by_text("Up to date")).to_be_visible()
    page.get_by_role("link", name="Plan", exact=True).click()
    page.get_by_role("tab", name="Switch policy mid-run").click()
    main = page.get_by_test_id("stMain")
    instant = main.get_by_label("Exact time", exact=True)
    instant.fill("day 4, 00:00")
    instant.press("Enter")
    expect(page).to_have_url(re.compile("at=259200"))
    idle(page)  # what is drawn anew closes a list
    main.get_by_label("Racks or nodes to remove").fill("a100-1/r1")
    page.get_by_role("option", name="a100-1/r1 (4 nodes)").click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name=re.compile("^Run: about ")).click()
    finding = page.get_by_role("heading", level=1).first
    expect(finding).to_have_text(
        re.compile(r"^From day 4, 00:00 on without a100-1/r1: .*; nothing changed before\.$")
    )
    told = finding.inner_text()
    expect(main.locator(".js-plotly-plot")).to_have_count(1)
    page.reload()
    expect(finding).to_have_text(told)
    page.set_viewport_size({"width": 800, "height": 1000})
    wide(page)
    page.get_by_role("link", name="Trainyard", exact=True).click()
    page.get_by_role("button", name=re.compile("from day 4, 00:00 on without a100-1")).click()
    expect(finding).to_have_text(told)
    expect(page).to_have_url(re.compile("tab=from-here"))
