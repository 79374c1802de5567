"""Explore in a real browser: what only a browser can do, clicks in figures and tables, Play, and a
link that shows the same elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from sim.cluster import Cluster
from sim.params import Spec
from tests.browser.conftest import fill
from tests.browser.waiting import idle
from trainyard.results import outcomes
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace

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
    chip = page.get_by_role("button", name=re.compile(r"^Day \d, .* – day \d, "))
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
    # The page for Play and for Pause, between them three steps of a table and a line.
    assert received[0] < 400_000
    expect(page.locator(".st-key-machines .js-plotly-plot[data-mine=yes]")).to_be_visible()


@pytest.fixture(scope="module")
def large(sample_store: Path) -> Study:
    """Return a study of 10,000 jobs on 512 nodes; its results are in the shared store."""
    study = new_study.sample_study()
    trace = TraceSpec("made:gavel:jobs=10000,per_h=120,multi_gpu=yes")
    base = replace(study.base, trace=trace, cluster=Cluster.parse("512x8:v100"))
    study = replace(study, base=base, allocators=(Spec("fifo"),))
    fill(sample_store, study)
    return study


def large_map(app: str, visit: Visit, study: Study, width: int = 1440) -> Page:
    page = visit(f"{app}/explore?s={study.pack()}&r=1", width)
    expect(page.locator(".ty-jobs[data-drawn] .lens")).to_be_visible()
    idle(page)
    return page


def on_map(page: Page, row: int, t_s: float) -> tuple[float, float]:
    """Where a node and a time are on the map of the script."""
    found = page.evaluate(
        """([row, t]) => {
          const root = document.querySelector(".ty-jobs"),
            { left, width, high, data } = root.jobMap.state,
            box = root.querySelector(".map").getBoundingClientRect(), [t0, t1] = data.window;
          return [box.left + left + (t - t0) / (t1 - t0) * (width - left - 16),
            box.top + (row + 0.5) / data.rows.length * high];
        }""",
        [row, t_s],
    )
    return float(found[0]), float(found[1])


def jobs_at(study: Study, store: Path, points: Any) -> list[list[str]]:
    """The ids of the jobs at each (node, second), as the result has them."""
    result = outcomes.gather(study, Store(store)).entries[0][0].result()
    held = result.placements.merge(
        result.segments[["job", "t0", "t1"]], left_on="segment", right_index=True
    )
    ids = load_trace(study.base.trace).frame["job_id"]
    return [
        sorted(ids[held[(held["node"] == node) & (held["t0"] <= t) & (t < held["t1"])]["job"]])
        for node, t in points
    ]


def test_the_names_at_500_points_are_those_of_the_placements(
    sample_app: str, sample_store: Path, visit: Visit, large: Study
) -> None:
    page = large_map(sample_app, visit, large)
    span_s = page.evaluate("document.querySelector('.ty-jobs').jobMap.state.data.window[1]")
    random = np.random.default_rng(0)
    points = [(int(random.integers(512)), float(random.uniform(0, span_s))) for _ in range(250)]
    points += [(int(random.integers(60)), float(random.uniform(0, span_s / 3))) for _ in range(250)]
    found = page.evaluate(
        """points => points.map(([row, t]) =>
          document.querySelector(".ty-jobs").jobMap.names(0, row, t).sort())""",
        points,
    )
    expected = jobs_at(large, sample_store, points)
    assert found == expected
    assert sum(map(bool, expected)) > 200


def state(page: Page, expression: str) -> Any:
    """What the script of the job map has, `s` being its state."""
    return page.evaluate(f"((s) => {expression})(document.querySelector('.ty-jobs').jobMap.state)")


def opened_job(page: Page, name: str) -> None:
    """The drawer of a job opens; close it."""
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_role("heading", name=re.compile(rf"^Job {name} · "))).to_be_visible()
    expect(page).to_have_url(re.compile(rf"job_id={name}(&|$)"))
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    idle(page)


def test_a_point_of_512_nodes_names_its_jobs_and_a_click_or_enter_opens_the_widest(
    sample_app: str, sample_store: Path, visit: Visit, large: Study
) -> None:
    page = large_map(sample_app, visit, large)
    expect(page.get_by_role("heading", level=1)).to_have_text(
        re.compile(r"^FIFO never uses \d+ of 512 nodes\.$")
    )
    said, place = page.locator(".ty-jobs p"), page.locator(".ty-jobs p > b")
    page.mouse.move(*on_map(page, 20, 200_000.0))
    expect(place).to_have_text(re.compile(r"^v100-1-\d+, day 3, 07:\d\d$"))
    cursor = state(page, "s.cursor")
    (jobs,) = jobs_at(large, sample_store, [(cursor["row"], cursor["t"])])
    assert len(jobs) > 5
    expect(said).to_contain_text(f"{len(jobs) - 5} more")
    names = [name.removeprefix("job ") for name in said.locator("button").all_inner_texts()]
    assert (len(names), set(names) <= set(jobs)) == (5, True)
    frames = page.evaluate(
        """async ([x, y]) => {
          const root = document.querySelector(".ty-jobs"), before = root.jobMap.state.frames;
          for (let at = 0; at < 50; at++)
            root.querySelector(".map").dispatchEvent(new PointerEvent("pointermove",
              { clientX: x + at, clientY: y, pointerType: "mouse", bubbles: true }));
          await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
          return [root.jobMap.state.frames - before, root.jobMap.state.draws];
        }""",
        on_map(page, 20, 200_000.0),
    )
    assert frames == [1, 1]
    page.mouse.move(*on_map(page, 20, 200_001.0))
    expect(said.locator("button").first).to_have_text(f"job {names[0]}")
    page.mouse.click(*on_map(page, 20, 200_001.0))
    opened_job(page, names[0])
    expect(page.get_by_role("tab", name="Jobs of v100-1-0")).to_be_visible()
    # The map is the same as before, and keys go on from the point that was clicked.
    page.locator(".ty-jobs").focus()
    row = state(page, "s.cursor.row")
    page.keyboard.press("ArrowDown")
    expect(place).to_have_text(re.compile(rf"^v100-1-{row + 2:03d}, day 3, 07:\d\d$"))
    assert state(page, "s.draws") == 1
    name = said.locator("button").first.inner_text().removeprefix("job ")
    page.keyboard.press("Enter")
    opened_job(page, name)
    # A bar of the lens.
    bar = state(
        page,
        "(({ x0, x1, y0, y1, one }, box) => [box.left + (x0 + x1) / 2, box.top + (y0 + y1) / 2,"
        " s.data.names[s.data.panels[0].job[one]]])(s.bars.reduce((a, b) =>"
        " b.y1 - b.y0 > a.y1 - a.y0 ? b : a), s.near.getBoundingClientRect())",
    )
    page.mouse.click(bar[0], bar[1])
    opened_job(page, bar[2])


def test_on_a_phone_the_first_touch_names_the_jobs_and_the_second_opens_one(
    sample_app: str, visit: Visit, large: Study
) -> None:
    page = large_map(sample_app, visit, large, 390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390

    def touch(row: int) -> None:
        x, y = on_map(page, row, 200_000.0)
        for name in ("pointerdown", "pointerup"):
            page.locator(".ty-jobs .map").dispatch_event(
                name, {"clientX": x, "clientY": y, "pointerType": "touch", "bubbles": True}
            )

    first = page.locator(".ty-jobs p button").first
    touch(20)
    expect(page.locator(".ty-jobs p > b")).to_have_text(re.compile("day 3"))
    name = first.inner_text().removeprefix("job ")
    idle(page)
    assert "job_id" not in page.url
    touch(20)
    opened_job(page, name)
    touch(200)
    expect(first).not_to_have_text(f"job {name}")
    name = first.inner_text().removeprefix("job ")
    first.click()
    opened_job(page, name)
