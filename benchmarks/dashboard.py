"""What the pages cost: bytes to the browser, points drawn, processor time of the server, reactions
to zoom, brush and cancel, and forty sessions at once.
"""

from __future__ import annotations

import json
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
from playwright.sync_api import Browser, Page, WebSocket, expect, sync_playwright
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from sim.contract import Spec
from tests.browser.server import FLAGS, chromium, serving
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces import start
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
"""A session that is gone may come back for a minute."""
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
class Watch:
    """What a page receives, and whom it asks."""

    received: int = 0
    strangers: list[str] = field(default_factory=list)

    def on(self, page: Page) -> None:
        """Count from now on."""
        page.on("websocket", self._socket)
        page.on("request", lambda request: self._asked(request.url))

    def _socket(self, socket: WebSocket) -> None:
        socket.on("framereceived", lambda payload: self._more(len(payload)))

    def _more(self, count: int) -> None:
        self.received += count

    def _asked(self, url: str) -> None:
        if not url.startswith(("http://127.0.0.1", "data:", "blob:")):
            self.strangers.append(url)


@dataclass
class PageFigures:
    """What was measured, printed as it comes, and what is over its budget."""

    over: list[str] = field(default_factory=list)

    def note(self, what: str, value: float, most: float | None = None, unit: str = "") -> None:
        """Print a figure beside its budget."""
        print(
            json.dumps({"figure": what, "value": round(value, 3), "unit": unit, "budget": most}),
            flush=True,
        )
        if most is not None and value > most:
            self.over.append(f"{what}: {value:.3g} {unit} (at most {most:g})")


def main(arguments: list[str]) -> list[str]:
    """Print the figures and return what is over its budget."""
    del arguments
    figures = PageFigures()
    figures.note(
        "load of this machine, processes that want a core, of the last minute", os.getloadavg()[0]
    )
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        with serving(Path(folder) / "store") as address:
            server = _server(address)
            _pages(browser, address, figures)
            _processor(browser, address, server, figures)
            _brushes(browser, address, figures)
            _beside_a_run(browser, address, figures)
            _cancel(browser, address, server, figures)
            _closed(browser, address, server, figures)
            orphans = _begun(browser, address, server)
        figures.note(
            "workers after the server has stopped",
            sum(psutil.pid_exists(worker) for worker in orphans),
            0,
        )
        with serving(Path(folder) / "other") as address:
            _class(browser, address, Path(folder) / "other", figures)
        browser.close()
    figures.note("load of this machine at the end", os.getloadavg()[0])
    return figures.over


def _server(address: str) -> psutil.Process:
    port = address.rpartition(":")[2]
    return next(
        child for child in psutil.Process().children(recursive=True) if port in child.cmdline()
    )


def _study(seed: int = 0) -> Study:
    study = start.sample_study()
    return replace(study, base=replace(study.base, seed=seed))


def _thousands(*policies: str, repeats: int = 1, seed: int = 0) -> Study:
    """10,000 jobs; with many repeats it takes long enough to be watched, and to be stopped."""
    _, cluster = load_sample("philly-like")
    base = Scenario(TraceSpec.of("sample:philly-like"), cluster, Spec("fifo"), seed=seed)
    return Study(base, tuple(map(Spec, policies)), repeats=repeats)


@contextmanager
def _opened(
    browser: Browser, address: str, path: str, watch: Watch | None = None
) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.set_default_timeout(60_000)
    if watch is not None:
        watch.on(page)
    page.goto(f"{address}/{path}")
    page.locator(".st-key-share button").wait_for(state="attached")
    _idle(page)
    yield page
    page.close()


def _idle(page: Page) -> None:
    page.wait_for_function(
        "() => !document.querySelector('[data-testid=stApp][data-test-script-state=running],"
        " [data-testid=stSkeleton]')",
        polling=10,
    )


def _result(browser: Browser, address: str, study: Study) -> None:
    with _opened(browser, address, f"compare?s={study.pack()}") as page:
        _run(page)
        expect(page.get_by_text("Up to date")).to_be_visible(timeout=120_000)


def _run(page: Page) -> None:
    page.locator(".st-key-bar").get_by_role("button", name="Run", exact=True).click()


def _pages(browser: Browser, address: str, figures: PageFigures) -> None:
    """Bytes, points, rows and strangers, page by page, with the result of the sample."""
    study = _study()
    _result(browser, address, study)
    for name in PAGES:
        watch = Watch()
        with _opened(
            browser, address, f"{'' if name == 'start' else name}?s={study.pack()}", watch
        ) as page:
            page.wait_for_timeout(3000)
            figures.note(
                f"{name}: to the browser", watch.received / 1e6, MAX_MB.get(name, OTHERS_MB), "MB"
            )
            traces = [trace for plot in page.evaluate(_DRAWN) for trace in plot]
            lines = [int(trace["points"]) for trace in traces if trace["kind"] != "bar"]
            figures.note(f"{name}: points of the longest trace", max(lines, default=0), MAX_POINTS)
            figures.note(f"{name}: points of all traces", sum(lines), MAX_PAGE_POINTS)
            figures.note(
                f"{name}: cells",
                max((int(trace["cells"]) for trace in traces), default=0),
                MAX_CELLS,
            )
            figures.note(
                f"{name}: bars",
                sum(int(trace["points"]) for trace in traces if trace["kind"] == "bar"),
                MAX_BARS,
            )
            figures.note(f"{name}: rows of the longest table", _longest(page), MAX_ROWS)
            figures.note(f"{name}: requests to other hosts", len(watch.strangers), 0)


def _longest(page: Page) -> int:
    """Return the rows of the longest table, with the data of every chart opened in turn."""
    rows = [*page.evaluate(_ROWS)]
    for menu in page.locator("[class*='st-key-data-'] button").all():
        if not menu.is_visible():  # of a tab that is closed
            continue
        menu.click()
        page.wait_for_timeout(2000)
        rows += page.evaluate(_ROWS)
        page.keyboard.press("Escape")
    return int(max(rows, default=0))


def _processor(
    browser: Browser, address: str, server: psutil.Process, figures: PageFigures
) -> None:
    """Processor time of the server for a rerun of a whole page with results, asked for with a
    choice in it.
    """
    for name in ("compare", "explore"):
        with _opened(browser, address, f"{name}?s={_study().pack()}") as page:
            page.wait_for_timeout(2000)
            for turn in range(4):
                _rerun(page, turn)
            page.wait_for_timeout(1000)
            before = _cpu_s(server)
            for turn in range(RERUNS):
                _rerun(page, turn)
            figures.note(
                f"{name}: processor time of a rerun",
                1000 * (_cpu_s(server) - before) / RERUNS,
                MAX_CPU_MS,
                "ms",
            )


def _rerun(page: Page, turn: int) -> float:
    """Highlight another policy on Compare, or show another picture on Explore, which runs all of
    the page, and wait for the answer to follow.
    """
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
    taken = time.perf_counter() - began
    # The other figures follow, and a click while they are drawn may miss its button.
    page.wait_for_timeout(700)
    return taken


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _brushes(browser: Browser, address: str, figures: PageFigures) -> None:
    study = _thousands("fifo", "sjf", "easy", "srtf")
    _result(browser, address, study)
    with _opened(browser, address, f"compare?s={study.pack()}") as page:
        page.wait_for_timeout(3000)
        seconds = [_brush(page, share) for share in (0.5, 0.6, 0.7, 0.55, 0.65)]
        figures.note(
            "brush to redrawn panel, 10,000 jobs, median",
            statistics.median(seconds),
            MAX_BRUSH_S,
            "s",
        )
        rows = [_click_row(page, at) for at in (1, 2, 3)]
        figures.note("row of the ledger to the headline", min(rows), MAX_ROW_S, "s")
        drawers = [_open_job(page, at) for at in (0, 1, 2)]
        figures.note("job to its reason in the drawer", min(drawers), MAX_DRAWER_S, "s")


def _click_row(page: Page, at: int) -> float:
    row = page.locator(".st-key-ledger .ty-ledger tbody tr").nth(at)
    title = row.get_attribute("title")
    began = time.perf_counter()
    row.click()
    page.locator(f"h1.ty-answer span:text-is('{title}')").wait_for()
    return time.perf_counter() - began


def _open_job(page: Page, at: int) -> float:
    table = page.get_by_test_id("stDataFrame").first
    table.scroll_into_view_if_needed()
    page.wait_for_timeout(1500)
    began = time.perf_counter()
    table.click(position={"x": 20, "y": 55 + 35 * at})
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_text(re.compile(r"\w+: \S")).first).to_be_visible()
    taken = time.perf_counter() - began
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    return taken


def _brush(page: Page, share: float) -> float:
    chart = page.locator(".st-key-over_time .nsewdrag").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    if box is None:
        raise RuntimeError("the chart has no place on the page")
    before = page.evaluate(_RANGE)
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2, steps=6)
    began = time.perf_counter()
    page.mouse.up()
    page.wait_for_function(f"before => ({_RANGE})() !== before", arg=before, polling=10)
    taken = time.perf_counter() - began
    page.locator(".st-key-compare_whole button").click()
    page.wait_for_timeout(1500)
    return taken


def _long() -> Study:
    return _thousands("las", "srtf", "easy", repeats=20)


def _begun(browser: Browser, address: str, server: psutil.Process) -> set[int]:
    """Begin a run in a tab that is then closed; return its workers. It must not be over before the
    session counts as gone, nor known from before.
    """
    endless = _thousands("las", "srtf", "easy", repeats=99, seed=int(time.time()))
    with _opened(browser, address, f"compare?s={endless.pack()}") as page:
        _run(page)
        page.get_by_role("button", name="Cancel").wait_for()
        return _workers(page, server)


def _workers(page: Page, server: psutil.Process) -> set[int]:
    """Return the processes that run something."""
    children = [child for child in server.children(recursive=True) if child.is_running()]
    before = {child.pid: _cpu_s(child) for child in children}
    page.wait_for_timeout(3000)
    return {
        child.pid
        for child in children
        if child.is_running() and _cpu_s(child) - before[child.pid] > 0.05
    }


def _gone_s(workers: set[int], began: float, most_s: float) -> float:
    while any(map(psutil.pid_exists, workers)) and time.perf_counter() - began < most_s:
        time.sleep(0.02)
    return time.perf_counter() - began


def _cancel(browser: Browser, address: str, server: psutil.Process, figures: PageFigures) -> None:
    stopped, gone = [], []
    with _opened(browser, address, f"compare?s={_long().pack()}") as page:
        button = page.get_by_role("button", name="Cancel")
        for _ in range(3):
            _run(page)
            button.wait_for()
            workers = _workers(page, server)
            began = time.perf_counter()
            button.click()
            expect(page.get_by_text(re.compile("^Stopped")).first).to_be_visible()
            stopped.append(time.perf_counter() - began)
            gone.append(_gone_s(workers, began, 20.0) if workers else 0.0)
            page.wait_for_timeout(2000)
    figures.note("cancel to stopped, median", statistics.median(stopped), MAX_CANCEL_S, "s")
    figures.note("cancel to worker gone, longest", max(gone), MAX_WORKER_S, "s")


def _closed(browser: Browser, address: str, server: psutil.Process, figures: PageFigures) -> None:
    workers = _begun(browser, address, server)
    figures.note("workers of a tab at the moment it is closed", len(workers))
    figures.note(
        "tab closed to worker gone", _gone_s(workers, time.perf_counter(), 240.0), LEAVE_S, "s"
    )


def _beside_a_run(browser: Browser, address: str, figures: PageFigures) -> None:
    """How much slower another session's rerun is while a run goes on."""
    with _opened(browser, address, f"compare?s={_study().pack()}") as quiet:
        quiet.wait_for_timeout(2000)
        idle = _median(lambda turn: _rerun(quiet, turn))
        with _opened(browser, address, f"compare?s={_long().pack()}") as busy:
            _run(busy)
            busy.get_by_role("button", name="Cancel").wait_for()
            busy.wait_for_timeout(2000)
            beside = _median(lambda turn: _rerun(quiet, turn))
            busy.get_by_role("button", name="Cancel").click()
        figures.note("rerun of a session, idle", 1000 * idle, None, "ms")
        figures.note(
            "rerun of another session during a run, against idle", beside / idle, MAX_SLOWDOWN
        )


def _median(measure: Callable[[int], float]) -> float:
    for turn in range(4):
        measure(turn)
    return statistics.median(measure(turn) for turn in range(10))


def _class(browser: Browser, address: str, store: Path, figures: PageFigures) -> None:
    """Open the sample in forty sessions at once, without drawing it forty times; the server has
    prepared it by itself.
    """
    server, study = _server(address), _study()
    with _opened(browser, address, f"compare?s={study.pack()}") as page:
        while len(list(store.rglob("manifest.json"))) < len(study.allocators):
            page.wait_for_timeout(500)
        page.reload()
        page.locator(".st-key-over_time .main-svg").first.wait_for()
    before, cpu_s, began = _memory_mb(server), _cpu_s(server), time.perf_counter()
    with ExitStack() as open_together, ThreadPoolExecutor(SESSIONS) as visitors:
        told = list(visitors.map(lambda _: _visit(open_together, address, study), range(SESSIONS)))
        figures.note("more memory of the server", _memory_mb(server) - before, MAX_GROWTH_MB, "MB")
    figures.note(
        "sessions without the result",
        sum(b"Up to date" not in text or b"over_time" not in text for text in told),
        0,
    )
    figures.note("forty sessions, until the last is drawn", time.perf_counter() - began, None, "s")
    figures.note("forty sessions, processor time of the server", _cpu_s(server) - cpu_s, None, "s")
    figures.note(
        "runs in the store", len(list(store.rglob("manifest.json"))), len(study.allocators)
    )


def _visit(open_together: ExitStack, address: str, study: Study) -> bytes:
    """Open a session as a browser does; return all that the server sends until the page is
    complete. The session stays.
    """
    url = f"{address.replace('http', 'ws', 1)}/_stcore/stream"
    socket = open_together.enter_context(
        connect(url, subprotocols=[Subprotocol("streamlit")], max_size=None)
    )
    ask = BackMsg()
    ask.rerun_script.query_string, ask.rerun_script.page_name = f"s={study.pack()}", "compare"
    socket.send(ask.SerializeToString())
    said = b""
    while True:
        frame = socket.recv(timeout=120)
        said += frame if isinstance(frame, bytes) else b""
        message = ForwardMsg.FromString(frame if isinstance(frame, bytes) else b"")
        if message.WhichOneof("type") == "script_finished" and b"over_time" in said:
            return said


def _memory_mb(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 1e6
