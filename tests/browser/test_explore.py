"""Explore in a real browser: what only a browser can do, clicks in figures and tables, Play, and a
link that shows the same elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.waiting import idle
from trainyard.traces import new_study

pytestmark = [pytest.mark.browser, pytest.mark.slow]
MAX_BYTES = 600_000
Visit = Callable[..., Page]


def click(page: Page, place: Locator) -> None:
    """Click the middle of something drawn, once Plotly has seen the mouse come."""
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x - 2, y)
    page.mouse.move(x, y)
    page.wait_for_function(
        "it => it.closest('.js-plotly-plot')._hoverdata?.length", arg=place.element_handle()
    )
    page.mouse.click(x, y)


def largest(bars: Locator) -> Locator:
    areas = [
        box["width"] * box["height"] if (box := bar.bounding_box()) else 0.0 for bar in bars.all()
    ]
    return bars.nth(areas.index(max(areas)))


def figure(page: Page, start: str) -> Locator:
    # While a part is drawn anew, the figure before it is still there for a moment.
    return page.locator(f"[class*='st-key-{start}'] .js-plotly-plot").last


def point(page: Page, across: float, row: int) -> tuple[float, float]:
    """Where a row of the first policy is, at a share of the window."""
    found = page.evaluate(
        """([across, row]) => {
          const chart = document.querySelector(".st-key-machines .js-plotly-plot"),
            { xaxis: x, yaxis: y } = chart._fullLayout, box = chart.getBoundingClientRect();
          return [box.left + x._offset + across * x._length,
            box.top + y._offset + (row + 0.5) * 18];
        }""",
        [across, row],
    )
    return float(found[0]), float(found[1])


def click_node(page: Page, row: int) -> str:
    """Click a node of the map in the middle of the window, once the map has seen the mouse come."""
    node = new_study.sample_study().base.cluster.nodes[row].name
    hair = page.locator(".ty-hair:not(.ty-fixed)")
    page.mouse.move(*point(page, 0.501, row))
    page.mouse.move(*point(page, 0.5, row))
    expect(hair).to_have_attribute("data-at", re.compile(rf"^{node} · \d+ % · day \d, \d\d:\d\d$"))
    said = page.locator(".ty-jobs p")
    expect(said.locator("b")).to_have_text(re.compile(rf"^\S+ · {node}, day \d, \d\d:\d\d$"))
    job = said.locator("button").first.inner_text()
    page.mouse.click(*point(page, 0.5, row))
    expect(page.get_by_role("tab", name=f"Jobs of {node}")).to_be_visible()
    drawer = page.get_by_role("dialog")
    expect(
        drawer.get_by_role("heading", name=re.compile(rf"^{job} ", re.IGNORECASE))
    ).to_be_visible()
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    idle(page)
    return node


def test_a_click_fixes_the_instant_arrows_move_it_and_a_drag_chooses_the_window(
    sample_app: str, visit: Visit
) -> None:
    page = ran(sample_app, visit)
    fixed = page.locator(".ty-instant b")
    click_node(page, 2)
    expect(fixed).to_have_text(re.compile(r"^Day 4, \d\d:\d\d$"))
    told = fixed.inner_text()
    page.locator(".ty-instant").focus()
    page.keyboard.press("ArrowRight")
    expect(fixed).not_to_have_text(told)
    assert page.evaluate("document.activeElement.className") == "ty-instant"
    idle(page)
    page.mouse.move(*point(page, 0.6, 3))
    page.mouse.down()
    page.mouse.move(*point(page, 0.7, 3), steps=3)
    page.mouse.move(*point(page, 0.8, 3), steps=3)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"t0=\d+&t1=\d+"))
    chip = page.get_by_role("button", name=re.compile(r"^day \d, .* to day \d, "))
    expect(chip).to_be_visible()
    page.get_by_role("button", name="✕").click()
    expect(chip).to_have_count(0)


def ran(app: str, visit: Visit) -> Page:
    """Explore with the results of the sample."""
    page = visit(f"{app}/explore?s={new_study.sample_study().pack()}&r=1")
    expect(figure(page, "machines")).to_be_visible()
    idle(page)
    return page


def test_from_a_node_to_a_job_to_why_it_waited_and_the_same_elsewhere(
    sample_app: str, visit: Visit
) -> None:
    page = ran(sample_app, visit)
    last = click_node(page, 3)
    page.get_by_role("tab", name=f"Jobs of {last}").click()
    expect(figure(page, "node")).to_contain_text(f"Jobs on {last}")
    click(page, largest(figure(page, "node").locator(".barlayer .point path")))
    expect(page).to_have_url(re.compile(r"job_id=\d+"))
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_text("Waited to start")).to_be_visible()
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    expect(page).not_to_have_url(re.compile(r"job_id="))
    idle(page)
    page.get_by_role("tab", name="Jobs waiting").click()
    idle(page)
    page.locator(".dvn-scroller").first.click(position={"x": 20, "y": 55})
    expect(page).to_have_url(re.compile(r"job_id=\d+"))
    job = re.search(r"job_id=(\d+)", page.url)
    assert job is not None
    title = re.compile(rf"^Job {job[1]} · .*GPU")
    expect(drawer.get_by_role("heading", name=title)).to_be_visible()
    other = visit(page.url)
    expect(other.get_by_role("dialog").get_by_role("heading", name=title)).to_be_visible()


def test_play_moves_the_line_only_and_the_page_is_light(sample_app: str, visit: Visit) -> None:
    page = visit(f"{sample_app}/explore?s={new_study.sample_study().pack()}&at=3600")
    expect(figure(page, "machines")).to_be_visible()
    received = [0]
    page.on(
        "websocket",
        lambda socket: socket.on(
            "framereceived", lambda frame: received.__setitem__(0, received[0] + len(frame))
        ),
    )
    page.goto(f"{sample_app}/explore?s={new_study.sample_study().pack()}&at=3600")
    expect(figure(page, "machines")).to_be_visible()
    idle(page)
    assert received[0] < MAX_BYTES
    page.evaluate("document.querySelector('.st-key-machines .js-plotly-plot').dataset.mine = 'yes'")
    page.get_by_role("button", name="Time controls").click()
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    received[0] = 0
    page.wait_for_function("Number(new URL(location.href).searchParams.get('at')) >= 4 * 3600")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    # Three steps of a table and a line, no heat map.
    assert received[0] < 300_000
    expect(page.locator(".st-key-machines .js-plotly-plot[data-mine=yes]")).to_be_visible()
