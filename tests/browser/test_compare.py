"""The first screen of Compare: where everything stands, what the ledger reads, what is sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from sim.cluster import Cluster
from sim.params import Spec
from tests.browser.conftest import Scheme, fill
from tests.browser.measuring import low_contrast, misplaced
from tests.browser.server import ROOT, serving
from tests.browser.waiting import idle
from trainyard.results import outcomes
from trainyard.results.window_series import loads
from trainyard.store import Store
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.views.charts import TimeAxis
from trainyard.views.charts.lines import short_names

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Visit = Callable[..., Page]
TIME, CURVE = ".st-key-over_time .js-plotly-plot", ".st-key-done_within .js-plotly-plot"
LEDGER = ".st-key-ledger .ty-ledger"
HEIGHT = 900
WINDOWS = [None, (370_000.0, 560_000.0), (392_000.0, 393_500.0)]
VISIBLE = """element => {
  for (let node = element; node; node = node.parentElement) {
    const style = getComputedStyle(node);
    if (style.visibility === 'hidden' || style.display === 'none') return false;
  }
  const box = element.getBoundingClientRect();
  return box.width > 0 && box.height > 0 && box.top < innerHeight && box.bottom > 0;
}"""
WORDS = f"""() => {{
  const visible = {VISIBLE}, walker = document.createTreeWalker(document.body, 4), words = [];
  while (walker.nextNode()) {{
    const node = walker.currentNode, parent = node.parentElement;
    const silent = 'header, script, style, [aria-live], [data-testid=stIconMaterial]';
    if (parent.closest(silent) || !visible(parent)) continue;
    words.push(...(node.textContent.match(/\\p{{L}}{{2,}}/gu) ?? []));
  }}
  return words;
}}"""
TOUCHED = """(it, names) => names.forEach(name => it.dispatchEvent(
    new PointerEvent(name, { pointerType: 'touch', bubbles: true })))"""
STOPS = f"""() => [...document.querySelectorAll(
    'a[href], button, input, select, textarea, [tabindex]')].filter(one =>
    one.tabIndex >= 0 && !one.disabled && !one.closest('header') && ({VISIBLE})(one)
).map(one => one.outerHTML.slice(0, 90))"""


def study_of_five() -> Study:
    sample = new_study.sample_study()
    return sample.choosing((*sample.allocators, Spec("gavel")), sample.baseline)


def overloaded() -> Study:
    """64 GPUs' worth of jobs for 1 GPU's worth of time: 75 times too much."""
    sample = new_study.sample_study()
    small = new_study.with_cluster(sample, Cluster.parse("1x8:v100"))
    base = replace(small.base, trace=replace(small.base.trace, load=7.0))
    return new_study.with_policies(replace(small, base=base), (Spec("fifo"), Spec("srtf")))


@pytest.fixture(scope="module", autouse=True)
def studies(sample_store: Path) -> None:
    fill(sample_store, study_of_five(), overloaded())


def opened(
    visit: Visit,
    app: str,
    study: Study | None = None,
    window: Any = None,
    params: str = "",
    **more: Any,
) -> Page:
    """Compare with stored results, wholly drawn."""
    ends = f"&t0={window[0]:.0f}&t1={window[1]:.0f}" if window else params
    page = visit(f"{app}/compare?s={(study or study_of_five()).pack()}&r=1{ends}", **more)
    page.set_viewport_size({"width": more.get("width", 1440), "height": HEIGHT})
    drawn(page)
    return page


def drawn(page: Page) -> None:
    expect(page.locator(f"{LEDGER} tbody tr").first).to_be_visible()
    for chart in (TIME, CURVE):
        expect(page.locator(f"{chart} .trace").first).to_be_attached()
    idle(page)


def bottom(page: Page, selector: str) -> float:
    return max(
        box["y"] + box["height"]
        for one in page.locator(selector).all()
        if (box := one.bounding_box()) is not None
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_stands_in_one_screen(sample_app: str, visit: Visit, scheme: Scheme) -> None:
    page = opened(visit, sample_app, color_scheme=scheme)
    assert page.locator(f"{LEDGER} tbody tr").count() == 5
    for selector in (TIME, CURVE, f"{LEDGER} tbody tr"):
        assert bottom(page, selector) <= 860, selector
    height = page.evaluate(
        "document.querySelector('[data-testid=stMainBlockContainer]').scrollHeight"
    )
    assert height <= 1600
    words, stops = page.evaluate(WORDS), page.evaluate(STOPS)
    assert len(words) <= 220, " ".join(words)
    assert len(stops) <= 15, "\n".join(stops)
    assert page.locator("[data-testid=stBaseButton-primary]").count() <= 1
    assert page.locator("[data-testid=stSidebar]").count() == 0
    answer = page.locator("h1.ty-answer").bounding_box()
    assert answer is not None
    assert answer["height"] <= 64
    colours = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('.ty-ledger tbody tr')].map(
        row => [row.title, getComputedStyle(row.querySelector('i')).borderTopColor]))"""
    )
    lines = page.evaluate(
        f"""() => ['{TIME}', '{CURVE}'].map(name => Object.fromEntries(
        document.querySelector(name).data.filter(line => line.legendgroup).map(line => {{
          const probe = document.createElement('p');
          probe.style.color = line.line.color;
          return [line.legendgroup, probe.style.color];
        }})))"""
    )
    assert len(set(colours.values())) == 5
    assert lines == [colours, colours]
    for _ in tabs(page):
        assert low_contrast(page) == []


def tabs(page: Page) -> Iterator[None]:
    """Open one tab after the other."""
    for tab in page.locator(".st-key-compare_tabs [role=tab]").all():
        if tab.get_attribute("aria-selected") != "true":
            before = page.url
            tab.click()
            # The server has it: until then another click would be taken back.
            expect(page).not_to_have_url(before)
        idle(page)
        yield


def readouts(page: Page) -> dict[str, list[str]]:
    rows = page.locator(f"{LEDGER} tbody tr").evaluate_all(
        "rows => rows.map(row => [row.title,"
        " [...row.querySelectorAll('td.read')].map(cell => cell.textContent)])"
    )
    return dict(rows)


@pytest.mark.parametrize("window", WINDOWS)
def test_the_readout_is_the_series_at_every_zoom(
    sample_app: str, visit: Visit, sample_store: Path, window: tuple[float, float] | None
) -> None:
    page = opened(visit, sample_app, window=window)
    shown = outcomes.gather(study_of_five(), Store(sample_store))
    entries = {shown.titles[at]: shown.entries[at][0] for at in shown.places}
    found = loads(entries, shown.study.base.cluster, window)
    assert found.exact == (window == WINDOWS[2])
    t0, t1 = window or (0.0, max(entry.summary["end_s"] for entry in entries.values()))
    clock = TimeAxis(t0, t1).clock
    for at in range(20):
        area = page.evaluate(
            f"""() => {{ const chart = document.querySelector('{TIME}');
            const box = chart.getBoundingClientRect();
            const axis = chart._fullLayout.xaxis;
            return [box.left + axis._offset, axis._length, box.top]; }}"""
        )
        # The browser knows whole pixels only.
        x = int(area[0] + (at + 0.5) / 20 * area[1])
        share = (x - area[0]) / area[1]
        page.mouse.move(x, area[2] + (90 if at % 2 else 250))
        place = int((found.edges_s <= t0 + share * (t1 - t0)).sum()) - 1
        instant = t0 + share * (t1 - t0)
        if abs(found.edges_s - instant).min() < 1.5 * (t1 - t0) / area[1]:
            continue  # a pixel on the border of two bins
        edges = found.edges_s[place : place + 2].tolist()
        label = clock.format(edges[0]) if found.exact else clock.span(*edges)
        expect(page.locator(f"{LEDGER} thead .read").first).to_have_text(f"at {label}")
        read = readouts(page)
        assert set(read) == set(entries)
        for title, (waiting, busy) in read.items():
            load = found.runs[title]
            if load.waiting[place] != load.waiting[place]:
                assert (waiting, busy) == ("done", "done")
                continue
            mean, _, most = waiting.partition(", max ")
            assert int(mean) == pytest.approx(load.waiting[place], abs=0.51)
            assert int(most or mean) == load.most[place]
            assert float(busy.removesuffix(" %")) == pytest.approx(load.busy[place], abs=0.51)
    line = page.locator(f"{TIME} .ty-hair")
    box = line.bounding_box()
    assert box is not None
    assert box["width"] <= 1
    assert page.locator(f"{TIME} .hoverlayer *").count() == 0
    page.mouse.move(10, 10)
    expect(line).to_have_count(0)


def test_the_completion_curve_is_read_both_ways(sample_app: str, visit: Visit) -> None:
    page = opened(visit, sample_app)
    area = page.evaluate(
        f"""() => {{ const chart = document.querySelector('{CURVE}');
        const box = chart.getBoundingClientRect();
        const {{xaxis: x, yaxis: y}} = chart._fullLayout;
        return [box.left + x._offset + x._length / 2, box.top + y._offset + y._length / 2]; }}"""
    )
    page.mouse.move(*area)
    expect(page.locator(f"{LEDGER} thead tr:first-child .read")).to_have_text(
        re.compile(r"^within [\d.]+ (s|min|h|days) · (49|50|51) %$")
    )
    for share, within in readouts(page).values():
        assert re.fullmatch(r"\d+ %", share)
        assert re.fullmatch(r"[\d.]+ (s|min|h|days)", within)


LOOKS = f"""() => ['{TIME}', '{CURVE}'].flatMap(name => [...document.querySelectorAll(
    name + ' .scatterlayer .trace')].map(node => [
    node.getAttribute('style'), node.querySelector('.js-line')?.getAttribute('style') ?? '']))"""
RAISED = f"""() => ['{TIME}', '{CURVE}'].flatMap(name => {{
  const chart = document.querySelector(name);
  return chart._fullData.filter(line => line.legendgroup).map(line => {{
    const node = chart.querySelector('.trace' + line.uid);
    return [line.legendgroup, node.style.opacity, node.querySelector('.js-line').style.strokeWidth];
  }});
}})"""


def test_a_row_raises_its_lines_and_leaving_restores_them(sample_app: str, visit: Visit) -> None:
    page = opened(visit, sample_app)
    before = page.evaluate(LOOKS)
    for turn in range(2):
        for row in page.locator(f"{LEDGER} tbody tr").all():
            row.hover()
            title = row.get_attribute("title")
            for own, opacity, width in page.evaluate(RAISED):
                assert opacity == ("1" if own == title else "0.15"), own
                if own == title:
                    assert width == "2.6px"
        page.mouse.move(10, 10)
        assert page.evaluate(LOOKS) == before
        if not turn:
            page.locator(".st-key-goal").click()
            page.get_by_role("option").nth(2).click()
            drawn(page)
            before = page.evaluate(LOOKS)


def test_a_touch_raises_a_row_and_a_long_one_highlights_it(sample_app: str, visit: Visit) -> None:
    page = opened(visit, sample_app, study_of_five())
    answer = page.locator("h1.ty-answer")
    row = page.locator(f"{LEDGER} tbody tr[title='EASY backfilling']")
    expect(answer).not_to_contain_text("EASY")
    # At once: between two calls a busy browser may make a long touch of it.
    row.evaluate(TOUCHED, ["pointerdown", "pointerup", "click"])
    looks = {own: opacity for own, opacity, _ in page.evaluate(RAISED)}
    assert {own for own, opacity in looks.items() if opacity == "1"} == {"EASY backfilling"}
    expect(answer).not_to_contain_text("EASY")
    row.evaluate(TOUCHED, ["pointerdown"])
    expect(answer).to_contain_text("EASY backfilling")


def test_an_answer_sends_little_and_a_pointer_on_a_chart_nothing(
    sample_app: str, visit: Visit
) -> None:
    frames: list[int] = []

    def watch(page: Page) -> None:
        page.on(
            "websocket",
            lambda socket: socket.on("framereceived", lambda data: frames.append(len(data))),
        )

    page = opened(visit, sample_app, watch=watch)
    assert sum(frames) <= 250_000
    rows = page.locator(f"{LEDGER} tbody tr")
    # Charts and jobs are sent again, see config.toml; scripts and the readout are not.
    names = [rows.nth(at).get_attribute("title") for at in range(5)]
    for title in names[1:3]:
        frames.clear()
        rows.filter(has=page.locator(f"b:text-is('{title}')")).click()
        page.locator(f"h1.ty-answer span:text-is('{title}')").wait_for()
        drawn(page)
        assert sum(frames) <= 90_000, title
        assert f"high={title}".replace(" ", "+") in page.url
    for at in range(2):
        box = page.locator(TIME).bounding_box()
        assert box is not None
        frames.clear()
        page.mouse.move(box["x"] + 300 + 20 * at, box["y"] + 100)
        page.mouse.down()
        page.mouse.move(box["x"] + 500, box["y"] + 110, steps=4)
        page.mouse.up()
        page.locator(".st-key-compare_whole button").wait_for()
        page.wait_for_function(
            f"document.querySelector('{TIME}')?.layout.shapes?.some(one => one.type === 'rect')"
        )
        drawn(page)
        assert sum(frames) <= 150_000, at
        page.locator(".st-key-compare_whole button").click()
        expect(page.locator(".st-key-compare_whole button")).to_have_count(0)
        drawn(page)
    frames.clear()
    page.evaluate(
        f"""() => {{ const chart = document.querySelector('{TIME}');
        const box = chart.getBoundingClientRect(), drag = chart.querySelector('.nsewdrag');
        for (let at = 0; at < 200; at++)
          drag.dispatchEvent(new PointerEvent('pointermove', {{ bubbles: true,
            clientX: box.left + 60 + at * 4, clientY: box.top + 80 }})); }}"""
    )
    idle(page)
    assert frames == []


def test_overload_has_no_verdict_and_three_ways_out(sample_app: str, visit: Visit) -> None:
    page = visit(f"{sample_app}/compare?s={overloaded().pack()}&r=1")
    page.set_viewport_size({"width": 1440, "height": HEIGHT})
    expect(page.locator("h1.ty-answer")).to_contain_text("No policy can be judged here")
    idle(page)
    expect(page.locator("[class*='st-key-way']")).to_have_count(4)  # and what holds them
    assert page.locator(".ty-tiles, .ty-ledger").count() == 0
    page.get_by_role("button", name="Compare anyway").click()
    expect(page.locator(".ty-amber")).to_be_visible()
    drawn(page)
    assert page.locator(".ty-tiles").count() == 0
    text = page.locator("[data-testid=stMain]").inner_text()
    assert not re.search(r"cuts|[−+]\d[\d.]*\s?%|better|worse", text)


@pytest.mark.parametrize("width", [800, 390])
def test_small_screens(sample_app: str, visit: Visit, width: int) -> None:
    page = opened(visit, sample_app, width=width)
    for _ in tabs(page):
        assert misplaced(page) == []
    time_box, curve_box = (page.locator(one).bounding_box() for one in (TIME, CURVE))
    assert time_box is not None
    assert curve_box is not None
    assert curve_box["y"] >= time_box["y"] + time_box["height"] - 1
    rows = page.locator(".ty-ledger tbody tr")
    boxes = {row.get_attribute("title"): row.bounding_box() for row in rows.all()}
    order = sorted(boxes, key=lambda title: (boxes[title] or {"y": 0})["y"])
    assert len(order) == 5
    # On a phone each policy is a card with named figures, the highlighted one first.
    assert order[0] == ("SRTF" if width == 390 else "FIFO")
    named = rows.first.locator("td:visible").evaluate_all(
        "cells => cells.map(cell => getComputedStyle(cell, '::before').content)"
    )
    assert ('"Average completion time"' in named) == (width == 390)


def test_the_keyboard_alone_is_enough(sample_app: str, visit: Visit) -> None:
    page = opened(visit, sample_app)
    ledger = page.locator(LEDGER)
    ledger.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    title = page.locator(f"{LEDGER} tr.at").get_attribute("title")
    page.keyboard.press("Enter")
    page.locator(f"h1.ty-answer span:text-is('{title}')").wait_for()
    drawn(page)
    assert ledger.evaluate("one => one === document.activeElement")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    expect(ledger.locator("[aria-live]")).to_contain_text("at day 1, 15:00–16:30")
    page.keyboard.press("Escape")
    expect(page.locator(f"{LEDGER} thead .read").first).to_have_text("Peak queue")
    chip = page.locator(".st-key-compare_chip button").first
    chip.focus()
    page.keyboard.press("Enter")
    field = page.get_by_role("textbox", name="From")
    expect(field).to_be_visible()
    field.fill("day 3, 12:00")
    field.press("Enter")
    expect(page.locator(".st-key-compare_whole button")).to_be_visible()
    expect(chip).to_contain_text("Day 3, 12:00 –")
    assert "t0=216000" in page.url


def test_without_the_internals_of_plotly_charts_and_table_stay(
    browser: Browser,
    visit: Visit,
    sample_store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The script of the ledger sees other names than Plotly's own."""
    del browser
    (tmp_path / "sitecustomize.py").write_text(
        "from pathlib import Path\n"
        "read = Path.read_text\n"
        "def other(self, *a, **k):\n"
        "    text = read(self, *a, **k)\n"
        "    if self.name == 'ledger.js':\n"
        "        assert '_fullLayout' in text and '_fullData' in text\n"
        "        text = text.replace('_fullLayout', '_layoutOfNow')\n"
        "        text = text.replace('_fullData', '_dataOfNow')\n"
        "    return text\n"
        "Path.read_text = other\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    faults: list[str] = []

    def watch(page: Page) -> None:
        page.on("pageerror", lambda error: faults.append(str(error)))

    with serving(sample_store) as address:
        page = opened(visit, address, watch=watch)
        box = page.locator(TIME).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 400, box["y"] + 100)
        page.locator(f"{LEDGER} tbody tr").nth(1).hover()
        head = page.locator(f"{LEDGER} thead .read").first
        expect(head).to_have_text("Peak queue")
        assert page.locator(f"{TIME} .trace").count() >= 10
        assert page.locator(f"{LEDGER} tbody td.read").first.inner_text()
        page.locator(f"{LEDGER} tbody tr").nth(1).click()
        page.locator("h1.ty-answer span:text-is('EASY backfilling')").wait_for()
    assert faults == []


def test_a_saved_picture_names_every_line_and_cuts_nothing(sample_app: str, visit: Visit) -> None:
    page = visit(f"{sample_app}/compare?s={new_study.sample_study().pack()}&r=1")
    drawn(page)
    chart = page.locator(TIME)
    before = chart.evaluate("chart => [chart.layout.showlegend, chart._fullLayout.height]")
    chart.evaluate('chart => { chart._context.toImageButtonOptions.format = "svg"; }')
    chart.hover(force=True)
    with page.expect_download() as waiting:
        chart.locator(".modebar-btn").first.click(force=True)
    picture = Path(waiting.value.path()).read_text(encoding="utf-8")
    titles = new_study.sample_study().titles
    texts = re.findall(r"<t(?:ext|span)[^>]*>([^<]+)<", picture)
    assert {*texts} >= {*short_names(titles).values()}
    assert "A week on two GPU types · A100 and V100 · Trainyard" in texts
    assert "legendtext" not in picture
    # Text is measured in the font in which it is drawn outside of the page.
    assert "Arial" in picture
    assert "Source Sans" not in picture
    # Twice as sharp as the page.
    assert re.search(rf'<svg [^>]*height="{2 * (before[1] + 24)}"', picture)
    # The chart on the page is what it was.
    page.wait_for_function(
        f"() => !('height' in document.querySelector('{TIME}')._context.toImageButtonOptions)"
    )
    assert chart.evaluate("chart => [chart.layout.showlegend, chart._fullLayout.height]") == before


def test_the_picture_of_a_chart_is_copied(sample_app: str, visit: Visit) -> None:
    page = visit(f"{sample_app}/compare?s={new_study.sample_study().pack()}&r=1")
    drawn(page)
    # Without permission of a user there is no clipboard.
    page.evaluate(
        "() => { navigator.clipboard.write = async ([one]) => { window.copied = one; }; }"
    )
    page.locator(TIME).hover(force=True)
    button = page.get_by_role("button", name="Copy image")
    button.click(force=True)
    expect(button).to_have_attribute("data-title", "Copied")
    size = page.evaluate(
        """async () => {
        const image = await createImageBitmap(await window.copied.getType('image/png'));
        return [image.width, image.height]; }"""
    )
    shown = page.locator(TIME).evaluate("({ _fullLayout: { width, height } }) => [width, height]")
    assert size == pytest.approx([2 * shown[0], 2 * (shown[1] + 24)], abs=2)
    page.evaluate("() => { navigator.clipboard.write = () => Promise.reject(); }")
    button.click(force=True)
    expect(button).to_have_attribute("data-title", "The browser allowed no copy")


@pytest.mark.parametrize("width", [800, 390])
def test_five_tiles_leave_no_hole(sample_app: str, visit: Visit, width: int) -> None:
    page = visit(f"{sample_app}/compare?s={new_study.sample_study().pack()}&r=1", width=width)
    drawn(page)
    page.locator(".ty-tiles > :nth-child(6)").wait_for()
    idle(page)
    # The sixth tile is the cost, which a cluster of unknown GPUs does not have.
    ends = page.evaluate(
        """() => { const tiles = document.querySelector('.ty-tiles'); tiles.lastChild.remove();
        return [tiles.lastChild, tiles].map(one => one.getBoundingClientRect().right); }"""
    )
    assert ends[1] - ends[0] < 3
