"""Costs of the pages: bytes, points, CPU time of the server, reactions, and forty sessions."""

from __future__ import annotations

import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import psutil
from playwright.sync_api import Browser, Page, expect, sync_playwright
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from benchmarks.unit import print_figures
from sim.contract import Spec
from tests.browser.server import FLAGS, chromium, serving
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.samples import load_sample

MAX_MB: Final[Mapping[str, float]] = {"compare": 0.8, "explore": 0.6}
OTHERS_MB: Final = 0.3
MAX_POINTS, MAX_PAGE_POINTS, MAX_CELLS, MAX_BARS = 1000, 32_000, 130_000, 1500
MAX_CPU_MS: Final = 60.0
MAX_BRUSH_S: Final = 0.7
MAX_ROW_S, MAX_DRAWER_S = 0.5, 1.0
MAX_CANCEL_S, MAX_WORKER_S = 1.0, 2.0
MAX_SLOWDOWN: Final = 3.0
SESSIONS, MAX_GROWTH_MB = 40, 250.0
MAX_ROWS: Final = 500
LEAVE_S: Final = 62.0
"""A disconnected session can return for a minute before its runs end."""
RERUNS: Final = 20
PAGES: Final = ("start", "trace", "cluster", "policies", "compare", "explore", "plan", "learn")

_DRAWN: Final = """() => [...document.querySelectorAll('.js-plotly-plot')].map(gd => (gd._fullData || []).map(t => ({
  kind: t.type, points: (t.z ? 0 : (t.x || t.y || []).length), cells: t.z ? t.z.length * (t.z[0] || []).length : 0})))"""  # noqa: E501
_RANGE: Final = (
    "() => JSON.stringify(document.querySelector('.st-key-over_time"
    " .js-plotly-plot')._fullLayout.xaxis.range)"
)
_PICTURES: Final = """count => [...document.querySelectorAll('.js-plotly-plot')].some(gd =>
  (gd._fullData || []).filter(trace => trace.type === 'heatmap').length === count)"""
_ROWS: Final = (
    "() => [...document.querySelectorAll('[role=grid]')].map(grid =>"
    " Number(grid.getAttribute('aria-rowcount')) - 1)"
)


@dataclass
class Traffic:
    """Bytes that a page receives, and its requests to other hosts."""

    received: int = 0
    foreign_urls: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        """Count the traffic of a page."""
        page.on("websocket", lambda socket: socket.on("framereceived", self._add_frame))
        page.on("request", lambda request: self._add_request(request.url))

    def _add_frame(self, payload: str | bytes) -> None:
        """Add the size of a frame."""
        self.received += len(payload)

    def _add_request(self, url: str) -> None:
        """Record a request to another host."""
        if not url.startswith(("http://127.0.0.1", "data:", "blob:")):
            self.foreign_urls.append(url)


@dataclass
class PageFigures:
    """Sentences about exceeded budgets; figures are printed at once."""

    over: list[str] = field(default_factory=list)

    def add(self, what: str, value: float, most: float | None = None, unit: str = "") -> None:
        """Print a figure with its budget, and record it if it exceeds the budget."""
        print_figures(figure=what, value=round(value, 3), unit=unit, budget=most)
        if most is not None and value > most:
            self.over.append(f"{what}: {value:.3g} {unit} (at most {most:g})")


def main(_arguments: list[str]) -> list[str]:
    """Print the figures and return exceeded budgets."""
    figures = PageFigures()
    figures.add("load average of the last minute", os.getloadavg()[0])
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        with serving(Path(folder) / "store") as address:
            server = _find_server(address)
            _measure_pages(browser, address, figures)
            _measure_cpu(browser, address, server, figures)
            _measure_reactions(browser, address, figures)
            _measure_during_run(browser, address, figures)
            _measure_cancel(browser, address, server, figures)
            _measure_closed_tab(browser, address, server, figures)
            orphans = _start_and_close(browser, address, server)
        figures.add(
            "workers after the server has stopped",
            sum(psutil.pid_exists(worker) for worker in orphans),
            0,
        )
        with serving(Path(folder) / "other") as address:
            _measure_class(browser, address, Path(folder) / "other", figures)
        browser.close()
    figures.add("load average at the end", os.getloadavg()[0])
    return figures.over


def _find_server(address: str) -> psutil.Process:
    """Return the server process of an address."""
    port = address.rpartition(":")[2]
    return next(
        child for child in psutil.Process().children(recursive=True) if port in child.cmdline()
    )


def _sample_study(seed: int = 0) -> Study:
    """Return the sample comparison with a seed."""
    study = new_study.sample_study()
    return replace(study, base=replace(study.base, seed=seed))


def _large_study(*policies: str, repeats: int = 1, seed: int = 0) -> Study:
    """Return a comparison on 10,000 jobs; many repeats make it run long."""
    _, cluster = load_sample("philly-like")
    base = Scenario(TraceSpec.of("sample:philly-like"), cluster, Spec("fifo"), seed=seed)
    return Study(base, tuple(map(Spec, policies)), repeats=repeats)


@contextmanager
def _open_page(
    browser: Browser, address: str, path: str, traffic: Traffic | None = None
) -> Iterator[Page]:
    """Open a page in a new window and wait until it is drawn."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.set_default_timeout(60_000)
    if traffic is not None:
        traffic.watch(page)
    page.goto(f"{address}/{path}")
    page.locator(".st-key-share button").wait_for(state="attached")
    _wait_until_idle(page)
    yield page
    page.close()


def _wait_until_idle(page: Page) -> None:
    """Wait until the script of the page has ended."""
    page.wait_for_function(
        "() => !document.querySelector('[data-testid=stApp][data-test-script-state=running],"
        " [data-testid=stSkeleton]')",
        polling=10,
    )


def _run_study(browser: Browser, address: str, study: Study) -> None:
    """Run a study on Compare and wait for its result."""
    with _open_page(browser, address, f"compare?s={study.pack()}") as page:
        _click_run(page)
        expect(page.get_by_text("Up to date")).to_be_visible(timeout=120_000)


def _click_run(page: Page) -> None:
    """Click Run in the scenario bar."""
    page.locator(".st-key-bar").get_by_role("button", name="Run", exact=True).click()


def _measure_pages(browser: Browser, address: str, figures: PageFigures) -> None:
    """Measure traffic, points, cells, bars and rows of each page with the sample's result."""
    study = _sample_study()
    _run_study(browser, address, study)
    for name in PAGES:
        traffic = Traffic()
        with _open_page(
            browser, address, f"{'' if name == 'start' else name}?s={study.pack()}", traffic
        ) as page:
            page.wait_for_timeout(3000)
            figures.add(
                f"{name}: to the browser", traffic.received / 1e6, MAX_MB.get(name, OTHERS_MB), "MB"
            )
            traces = [trace for plot in page.evaluate(_DRAWN) for trace in plot]
            lines = [int(trace["points"]) for trace in traces if trace["kind"] != "bar"]
            figures.add(f"{name}: points of the longest trace", max(lines, default=0), MAX_POINTS)
            figures.add(f"{name}: points of all traces", sum(lines), MAX_PAGE_POINTS)
            figures.add(
                f"{name}: cells",
                max((int(trace["cells"]) for trace in traces), default=0),
                MAX_CELLS,
            )
            figures.add(
                f"{name}: bars",
                sum(int(trace["points"]) for trace in traces if trace["kind"] == "bar"),
                MAX_BARS,
            )
            figures.add(f"{name}: rows of the longest table", _count_table_rows(page), MAX_ROWS)
            figures.add(f"{name}: requests to other hosts", len(traffic.foreign_urls), 0)


def _count_table_rows(page: Page) -> int:
    """Return the rows of the longest table, tables behind charts included."""
    rows = [*page.evaluate(_ROWS)]
    for menu in page.locator("[class*='st-key-data-'] button").all():
        if not menu.is_visible():  # in a closed tab
            continue
        menu.click()
        page.wait_for_timeout(2000)
        rows += page.evaluate(_ROWS)
        page.keyboard.press("Escape")
    return int(max(rows, default=0))


def _measure_cpu(
    browser: Browser, address: str, server: psutil.Process, figures: PageFigures
) -> None:
    """Measure the server's CPU time per rerun of a page with results."""
    for name in ("compare", "explore"):
        with _open_page(browser, address, f"{name}?s={_sample_study().pack()}") as page:
            page.wait_for_timeout(2000)
            for turn in range(4):
                _rerun(page, turn)
            page.wait_for_timeout(1000)
            before = _cpu_s(server)
            for turn in range(RERUNS):
                _rerun(page, turn)
            figures.add(
                f"{name}: processor time of a rerun",
                1000 * (_cpu_s(server) - before) / RERUNS,
                MAX_CPU_MS,
                "ms",
            )


def _rerun(page: Page, turn: int) -> float:
    """Choose another policy on Compare or picture on Explore; return the seconds to the answer."""
    rows = page.locator(".st-key-ledger .ty-ledger tbody tr")
    if rows.count():
        row = rows.nth(1 + turn % 2)
        title = row.get_attribute("title") or ""
        began = time.perf_counter()
        row.click()
        page.locator("h1.ty-answer").get_by_text(title, exact=True).wait_for()
    else:
        name, pictures = (("Difference", 1), ("GPUs in use", 2))[turn % 2]
        began = time.perf_counter()
        page.get_by_role("radio", name=name).click()
        page.wait_for_function(_PICTURES, arg=pictures, polling=5)
    took_s = time.perf_counter() - began
    # Other figures are drawn later; a click in that time can miss its button.
    page.wait_for_timeout(700)
    return took_s


def _cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def _measure_reactions(browser: Browser, address: str, figures: PageFigures) -> None:
    """Measure reactions to a brush, a row of the ledger and a job on Compare."""
    study = _large_study("fifo", "sjf", "easy", "srtf")
    _run_study(browser, address, study)
    with _open_page(browser, address, f"compare?s={study.pack()}") as page:
        page.wait_for_timeout(3000)
        seconds = [_drag_brush(page, share) for share in (0.5, 0.6, 0.7, 0.55, 0.65)]
        figures.add(
            "brush to redrawn panel, 10,000 jobs, median",
            statistics.median(seconds),
            MAX_BRUSH_S,
            "s",
        )
        rows = [_click_row(page, at) for at in (1, 2, 3)]
        figures.add("row of the ledger to the headline", min(rows), MAX_ROW_S, "s")
        drawers = [_open_job(page, at) for at in (0, 1, 2)]
        figures.add("job to its reason in the drawer", min(drawers), MAX_DRAWER_S, "s")


def _click_row(page: Page, at: int) -> float:
    """Click a row of the ledger; return the seconds until the headline names it."""
    row = page.locator(".st-key-ledger .ty-ledger tbody tr").nth(at)
    title = row.get_attribute("title")
    began = time.perf_counter()
    row.click()
    page.locator(f"h1.ty-answer span:text-is('{title}')").wait_for()
    return time.perf_counter() - began


def _open_job(page: Page, at: int) -> float:
    """Click a job; return the seconds until the drawer shows its reason."""
    table = page.get_by_test_id("stDataFrame").first
    table.scroll_into_view_if_needed()
    page.wait_for_timeout(1500)
    began = time.perf_counter()
    table.click(position={"x": 20, "y": 55 + 35 * at})
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_text(re.compile(r"\w+: \S")).first).to_be_visible()
    took_s = time.perf_counter() - began
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    return took_s


def _drag_brush(page: Page, share: float) -> float:
    """Drag a window on the chart; return the seconds until its axis changes."""
    chart = page.locator(".st-key-over_time .nsewdrag").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    if box is None:
        raise RuntimeError("The chart over time is not on the page.")
    before = page.evaluate(_RANGE)
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2, steps=6)
    began = time.perf_counter()
    page.mouse.up()
    page.wait_for_function(f"before => ({_RANGE})() !== before", arg=before, polling=10)
    took_s = time.perf_counter() - began
    page.locator(".st-key-compare_whole button").click()
    page.wait_for_timeout(1500)
    return took_s


def _long_study() -> Study:
    """Return a comparison that runs for minutes."""
    return _large_study("las", "srtf", "easy", repeats=20)


def _start_and_close(browser: Browser, address: str, server: psutil.Process) -> set[int]:
    """Start a long run that is not stored, close its tab, and return its workers."""
    endless = _large_study("las", "srtf", "easy", repeats=99, seed=int(time.time()))
    with _open_page(browser, address, f"compare?s={endless.pack()}") as page:
        _click_run(page)
        page.get_by_role("button", name="Cancel").wait_for()
        return _busy_workers(page, server)


def _busy_workers(page: Page, server: psutil.Process) -> set[int]:
    """Return the ids of the server's processes that use CPU time."""
    children = [child for child in server.children(recursive=True) if child.is_running()]
    before = {child.pid: _cpu_s(child) for child in children}
    page.wait_for_timeout(3000)
    return {
        child.pid
        for child in children
        if child.is_running() and _cpu_s(child) - before[child.pid] > 0.05
    }


def _wait_until_gone(workers: set[int], began: float, most_s: float) -> float:
    """Wait until no worker exists; return the seconds since `began`."""
    while any(map(psutil.pid_exists, workers)) and time.perf_counter() - began < most_s:
        time.sleep(0.02)
    return time.perf_counter() - began


def _measure_cancel(
    browser: Browser, address: str, server: psutil.Process, figures: PageFigures
) -> None:
    """Measure the seconds from Cancel to the message and to the end of the workers."""
    stopped, gone = [], []
    with _open_page(browser, address, f"compare?s={_long_study().pack()}") as page:
        button = page.get_by_role("button", name="Cancel")
        for _ in range(3):
            _click_run(page)
            button.wait_for()
            workers = _busy_workers(page, server)
            began = time.perf_counter()
            button.click()
            expect(page.get_by_text(re.compile("^Stopped")).first).to_be_visible()
            stopped.append(time.perf_counter() - began)
            gone.append(_wait_until_gone(workers, began, 20.0) if workers else 0.0)
            page.wait_for_timeout(2000)
    figures.add("cancel to stopped, median", statistics.median(stopped), MAX_CANCEL_S, "s")
    figures.add("cancel to worker gone, longest", max(gone), MAX_WORKER_S, "s")


def _measure_closed_tab(
    browser: Browser, address: str, server: psutil.Process, figures: PageFigures
) -> None:
    """Measure the seconds from a closed tab to the end of its workers."""
    workers = _start_and_close(browser, address, server)
    figures.add("workers of a tab at the moment it is closed", len(workers))
    figures.add(
        "tab closed to worker gone",
        _wait_until_gone(workers, time.perf_counter(), 240.0),
        LEAVE_S,
        "s",
    )


def _measure_during_run(browser: Browser, address: str, figures: PageFigures) -> None:
    """Measure how much a run slows the reruns of another session."""
    with _open_page(browser, address, f"compare?s={_sample_study().pack()}") as quiet:
        quiet.wait_for_timeout(2000)
        idle = _median_s(lambda turn: _rerun(quiet, turn))
        with _open_page(browser, address, f"compare?s={_long_study().pack()}") as busy:
            _click_run(busy)
            busy.get_by_role("button", name="Cancel").wait_for()
            busy.wait_for_timeout(2000)
            beside = _median_s(lambda turn: _rerun(quiet, turn))
            busy.get_by_role("button", name="Cancel").click()
        figures.add("rerun of a session, idle", 1000 * idle, None, "ms")
        figures.add(
            "rerun of another session during a run, against idle", beside / idle, MAX_SLOWDOWN
        )


def _median_s(measure: Callable[[int], float]) -> float:
    """Return the median of ten measurements after four warm-up turns."""
    for turn in range(4):
        measure(turn)
    return statistics.median(measure(turn) for turn in range(10))


def _measure_class(browser: Browser, address: str, store: Path, figures: PageFigures) -> None:
    """Measure memory and time of forty sessions that open the prepared sample at once."""
    server, study = _find_server(address), _sample_study()
    with _open_page(browser, address, f"compare?s={study.pack()}") as page:
        while len(list(store.rglob("manifest.json"))) < len(study.allocators):
            page.wait_for_timeout(500)
        page.reload()
        page.locator(".st-key-over_time .main-svg").first.wait_for()
    before, cpu_s, began = _memory_mb(server), _cpu_s(server), time.perf_counter()
    with ExitStack() as open_together, ThreadPoolExecutor(SESSIONS) as visitors:
        replies = list(
            visitors.map(lambda _: _open_session(open_together, address, study), range(SESSIONS))
        )
        figures.add("more memory of the server", _memory_mb(server) - before, MAX_GROWTH_MB, "MB")
    figures.add(
        "sessions without the result",
        sum(b"Up to date" not in text or b"over_time" not in text for text in replies),
        0,
    )
    figures.add("forty sessions, until the last is drawn", time.perf_counter() - began, None, "s")
    figures.add("forty sessions, processor time of the server", _cpu_s(server) - cpu_s, None, "s")
    figures.add("runs in the store", len(list(store.rglob("manifest.json"))), len(study.allocators))


def _open_session(open_together: ExitStack, address: str, study: Study) -> bytes:
    """Open a session like a browser; return the bytes received until the page is complete.

    The session stays open.
    """
    url = f"{address.replace('http', 'ws', 1)}/_stcore/stream"
    socket = open_together.enter_context(
        connect(url, subprotocols=[Subprotocol("streamlit")], max_size=None)
    )
    request = BackMsg()
    request.rerun_script.query_string, request.rerun_script.page_name = (
        f"s={study.pack()}",
        "compare",
    )
    socket.send(request.SerializeToString())
    received = b""
    while True:
        frame = socket.recv(timeout=120)
        received += frame if isinstance(frame, bytes) else b""
        message = ForwardMsg.FromString(frame if isinstance(frame, bytes) else b"")
        if message.WhichOneof("type") == "script_finished" and b"over_time" in received:
            return received


def _memory_mb(process: psutil.Process) -> float:
    """Return the resident memory of a process in MB."""
    return float(process.memory_info().rss) / 1e6
