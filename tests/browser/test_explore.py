"""Explore in a real browser: what only a browser can do, clicks in figures and tables, Play, and a link that shows the same elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from trainyard.traces import start

pytestmark = [pytest.mark.browser, pytest.mark.slow]
MOST_BYTES = 600_000
Visit = Callable[..., Page]


def click(page: Page, place: Locator) -> None:
    """Click the middle of something drawn, as a hand does: Plotly wants to see the mouse come."""
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x - 2, y)
    page.mouse.move(x, y)
    page.wait_for_timeout(300)
    page.mouse.click(x, y)


def largest(bars: Locator) -> Locator:
    areas = [box["width"] * box["height"] if (box := bar.bounding_box()) else 0.0 for bar in bars.all()]
    return bars.nth(areas.index(max(areas)))


def figure(page: Page, start: str) -> Locator:
    # While a part is drawn anew, the figure before it is still there for a moment.
    return page.locator(f"[class*='st-key-{start}'] .js-plotly-plot").last


def test_from_a_node_to_a_job_to_why_it_waited_and_the_same_elsewhere(app: str, visit: Visit) -> None:
    page = visit(f"{app}/start")
    page.get_by_role("button", name="Run the sample").click()
    expect(page.get_by_text("Up to date")).to_be_visible()
    page.get_by_role("link", name="Explore", exact=True).click()
    expect(figure(page, "occupancy")).to_be_visible()
    click(page, figure(page, "occupancy").locator(".scatterlayer .point").nth(3))
    last = start.sample_study().base.cluster.nodes[3].name
    expect(page).to_have_url(re.compile(f"node={last}"))
    expect(figure(page, "node")).to_contain_text(f"Which jobs were on {last}")
    click(page, largest(figure(page, "node").locator(".barlayer .point path")))
    expect(page).to_have_url(re.compile(r"job=\d+"))
    card = page.get_by_text("Why it waited", exact=True)
    expect(card).to_be_visible()
    before = page.url
    page.get_by_test_id("stDataFrame").first.click(position={"x": 20, "y": 55})
    expect(page).not_to_have_url(before)
    expect(page.get_by_text(re.compile(r"^Open: job"))).to_be_visible()
    expect(page.get_by_text(re.compile(r"(were free|free GPUs|submitted later|No job|No \d+)")).last).to_be_visible()
    job = re.search(r"job=(\d+)", page.url)
    assert job is not None
    # The sample numbers its jobs from 1, the address counts rows from 0.
    expect(page.get_by_text(re.compile(rf"^Job {int(job[1]) + 1} .* asked for"))).to_be_visible()
    other = visit(page.url)
    expect(figure(other, "life")).to_be_visible()
    assert other.get_by_text(re.compile(r"^Job .* asked for")).inner_text() == page.get_by_text(re.compile(r"^Job .* asked for")).inner_text()


def test_play_moves_the_line_only_and_the_page_is_light(app: str, visit: Visit) -> None:
    page = visit(f"{app}/explore?s={start.sample_study().pack()}&at=3600")
    page.get_by_role("button", name=re.compile("^Run")).first.click()
    expect(page.get_by_text("Up to date")).to_be_visible()
    received = [0]
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: received.__setitem__(0, received[0] + len(frame))))
    page.goto(f"{app}/explore?s={start.sample_study().pack()}&at=3600")
    expect(figure(page, "node")).to_be_visible()
    page.wait_for_timeout(1000)
    assert received[0] < MOST_BYTES
    page.evaluate("document.querySelector('[class*=st-key-occupancy] .js-plotly-plot').dataset.mine = 'yes'")
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    received[0] = 0
    page.wait_for_function("Number(new URL(location.href).searchParams.get('at')) >= 4 * 3600")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    # Three steps of a strip, a sentence and a table, no heat map.
    assert received[0] < 300_000
    expect(page.locator("[class*=st-key-occupancy] .js-plotly-plot[data-mine=yes]")).to_be_visible()
