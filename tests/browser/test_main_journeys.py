"""The eight journeys of the gate: what users do most, each in a browser context of its own.

They share one server and wait for states of the page only. The sample runs once on this server,
whichever journey comes first.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.test_explore import click_node, figure
from tests.browser.waiting import idle
from trainyard.traces import new_study

pytestmark = [pytest.mark.browser, pytest.mark.journey]
ANSWER, LEDGER = "h1.ty-answer", ".ty-ledger"
TIME, CURVE = ".st-key-over_time .js-plotly-plot", ".st-key-done_within .js-plotly-plot"
ZOOM_CHIP, WHOLE_RUN = ".st-key-compare_chip button", ".st-key-compare_whole button"
Visit = Callable[..., Page]


def compare_sample(app: str, visit: Visit) -> Page:
    """Run the sample from Start and return its comparison, drawn to the end."""
    page = visit(app)
    page.get_by_role("button", name="Run the sample").first.click()
    page.wait_for_url("**/compare**")
    wait_for_results(page)
    return page


def wait_for_results(page: Page) -> None:
    expect(page.locator(".st-key-bar").get_by_text("Up to date")).to_be_visible()
    expect(page.locator(f"{TIME} .trace").first).to_be_attached()
    idle(page)


def drag_across(page: Page, chart: Locator, begin: float, end: float) -> None:
    """Drag over a chart, between two shares of its width."""
    chart.scroll_into_view_if_needed()
    chart.hover()
    box = chart.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * begin, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * end, y, steps=6)
    page.mouse.up()


def ledger_rows(page: Page) -> dict[str, list[str]]:
    """Return the cells of each policy's row in the ledger."""
    rows: list[tuple[str, list[str]]] = page.locator(f"{LEDGER} tbody tr").evaluate_all(
        "rows => rows.map(row => [row.title,"
        " [...row.querySelectorAll('td')].map(cell => cell.innerText.split('\\n')[0])])"
    )
    return dict(rows)


def test_run_the_sample_and_compare(app: str, visit: Visit) -> None:
    page = compare_sample(app, visit)
    answer = page.locator(ANSWER)
    expect(answer).to_have_text(re.compile("^With SRTF the average job completes in "))
    rows = ledger_rows(page)
    assert list(rows)[:3] == ["FIFO", "EASY backfilling", "SRTF"]
    # The headline, the tiles and the ledger give the same two figures.
    times = re.findall(r"[\d.]+ (?:s|min|h|days)", answer.inner_text())[:2]
    assert len(set(times)) == 2
    for policy, time in zip(("SRTF", "FIFO"), times, strict=True):
        assert time in rows[policy]
        expect(page.locator(".ty-tiles")).to_contain_text(time)
    for chart in (TIME, CURVE):
        names = page.locator(chart).evaluate(
            "chart => chart.data.map(line => line.legendgroup).filter(name => name)"
        )
        assert set(names) == set(rows)


MARCH = "id,submitted,gpus,duration\n" + "\n".join(
    f"j{at},2026-03-{1 + at % 9:02d} 0{at % 9}:00:00,{1 + at % 4},{1200 + at}" for at in range(30)
)


def test_upload_a_trace_answer_its_questions_and_compare(app: str, visit: Visit) -> None:
    page = visit(f"{app}/trace")
    bar = page.locator(".st-key-bar")
    page.locator(".st-key-trace_file input[type=file]").first.set_input_files(
        {"name": "march.csv", "mimeType": "text/csv", "buffer": MARCH.encode()}
    )
    expect(page.get_by_text("This file leaves 2 questions open.")).to_be_visible()
    page.get_by_role("button", name="Read with these answers").click()
    expect(page.get_by_role("button", name="2 answers about this file")).to_be_visible()
    expect(page.locator("h1").first).to_contain_text("march.csv: 30 jobs")
    expect(bar.get_by_text("march.csv", exact=True)).to_be_visible()
    bar.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**/compare**")
    wait_for_results(page)
    expect(page.locator(ANSWER)).to_be_visible()
    assert set(ledger_rows(page)) == {"FIFO", "EASY backfilling", "SRTF"}


def test_open_a_job_and_close_it(app: str, visit: Visit) -> None:
    page = compare_sample(app, visit)
    drawer = page.get_by_role("dialog")
    page.locator(".dvn-scroller").first.click(position={"x": 20, "y": 55})
    expect(drawer.get_by_role("heading", name=re.compile(r"^Job \d+")).first).to_be_visible()
    expect(drawer.get_by_text("Waited to start")).to_be_visible()
    expect(drawer.get_by_text(re.compile(r"^SRTF: \S")).first).to_be_visible()
    expect(page).to_have_url(re.compile(r"[?&]job_id=\d+"))
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    expect(page).not_to_have_url(re.compile(r"[?&]job_id="))


def test_choose_a_zoom_window_and_reset_it(app: str, visit: Visit) -> None:
    page = compare_sample(app, visit)
    before = page.locator(TIME).evaluate("chart => chart.layout.xaxis.range")
    drag_across(page, page.locator(TIME), 0.5, 0.75)
    expect(page.locator(ZOOM_CHIP).first).to_have_text(
        re.compile(r"Day \d+, \d\d:\d\d – day \d+, \d\d:\d\d")
    )
    expect(page).to_have_url(re.compile(r"[?&]t0=\d+.*[?&]t1=\d+"))
    ends = [int(found) for found in re.findall(r"[?&]t[01]=(\d+)", page.url)]
    week_s = 7 * 86_400
    assert 0.3 * week_s < ends[0] < 0.7 * week_s
    assert 0.1 * week_s < ends[1] - ends[0] < 0.4 * week_s
    facts, tiles = page.locator("p.ty-facts").first, page.locator(".ty-tiles")
    expect(facts).to_contain_text(re.compile(r"\d+ of 1,200 jobs"))
    expect(tiles).to_contain_text("Longest queue")
    page.locator(TIME).locator(".nsewdrag").first.dblclick()
    expect(page.locator(WHOLE_RUN)).to_have_count(0)
    expect(tiles).not_to_contain_text("Longest queue")
    expect(facts).to_contain_text("1,200 jobs · ")
    idle(page)
    drag_across(page, page.locator(TIME), 0.5, 0.75)
    page.locator(WHOLE_RUN).click()
    expect(page.locator(WHOLE_RUN)).to_have_count(0)
    expect(page).not_to_have_url(re.compile(r"[?&]t0="))
    idle(page)
    assert page.locator(TIME).evaluate("chart => chart.layout.xaxis.range") == before


def test_search_the_fewest_nodes(app: str, visit: Visit) -> None:
    page = visit(f"{app}/plan?s={new_study.sample_study('tiny').pack()}")
    page.get_by_role("button", name="Search", exact=True).click()
    main = page.get_by_test_id("stMain")
    expect(main.locator("h1").first).to_have_text(
        "You own 1 V100 node. For 95 % of waits under 1 h: FIFO needs 1 T4 node (+$2,000 a month),"
        " EASY backfilling none."
    )
    expect(main.get_by_test_id("stProgress")).to_have_count(0)
    expect(main.locator(".js-plotly-plot")).to_have_count(1)
    expect(page).to_have_url(re.compile("[?&]q="))


def test_predict_and_run_a_lesson(app: str, visit: Visit) -> None:
    page = visit(f"{app}/learn?lesson=2&jobs=100")
    main = page.get_by_test_id("stMain")
    run = main.get_by_role("button", name="Run the lesson")
    expect(run).to_be_disabled()
    main.get_by_text("Some, but fewer").click()
    run.click()
    expect(main.get_by_text("your answer")).to_be_visible()
    expect(main.locator(".js-plotly-plot").first).to_be_visible()


def test_choose_a_node_on_the_heat_map(app: str, visit: Visit) -> None:
    page = compare_sample(app, visit)
    page.get_by_role("link", name="Explore", exact=True).click()
    expect(figure(page, "machines")).to_be_visible()
    idle(page)
    click_node(page, 2)
    expect(page.locator(".ty-instant b")).to_have_text(re.compile(r"^Day 4, \d\d:\d\d$"))


def test_open_a_shared_link_in_another_browser(app: str, visit: Visit) -> None:
    page = compare_sample(app, visit)
    page.locator(f"{LEDGER} tbody tr[title='EASY backfilling']").click()
    answer = page.locator(ANSWER)
    expect(answer).to_contain_text("EASY backfilling")
    idle(page)
    page.locator(".st-key-share button").click()
    link = page.get_by_label("Link", exact=True).input_value().strip()
    other = visit(link)
    wait_for_results(other)
    expect(other.locator(ANSWER)).to_have_text(answer.inner_text())
    assert ledger_rows(other) == ledger_rows(page)
