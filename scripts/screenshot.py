"""Take the pictures of the documentation from the running app.

``--all FOLDER`` saves every page instead, wide and narrow, light and dark. Pictures and the
animation tour.gif show the sample on a server with an empty store; they go to docs/images.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, chdir
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from PIL import Image
from playwright.sync_api import Browser, Locator, Page, sync_playwright

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.server import FLAGS, chromium, serving  # noqa: E402 - from this checkout
from tests.test_docs import blocks  # noqa: E402
from trainyard.study.scenario import TraceSpec  # noqa: E402
from trainyard.study.study import Study  # noqa: E402
from trainyard.traces.new_study import with_policies  # noqa: E402

IMAGES: Final = ROOT / "docs" / "images"
SLURM_TUTORIAL: Final = ROOT / "docs" / "tutorial" / "your-own-slurm.md"
PICTURE: Final = (1440, 900)
FRAME_MS: Final = 2600
COLOURS: Final = 128
MAX_COLOURS: Final = 256
MAX_BYTES: Final = 4_000_000
WIDTHS: Final = (1440, 800)
SCHEMES: Final[tuple[Literal["light"], Literal["dark"]]] = ("light", "dark")
PLACES: Final = {
    "start": "",
    "trace": "trace",
    "cluster": "cluster",
    "policies": "policies",
    "compare": "compare",
    "explore": "explore",
    "plan": "plan",
    "learn": "learn",
    "learn-replays": "learn?tab=replays",
    "learn-glossary": "learn?tab=glossary",
    "learn-limits": "learn?tab=limits",
}
"""Name of a picture -> path of its page."""
_BUSY: Final = (
    "[data-testid=stApp][data-test-script-state=running], [data-testid=stSkeleton],"
    " [data-testid=stSpinner]"
)
_HEIGHT: Final = "() => document.querySelector('[data-testid=stMain]').scrollHeight"


def main(arguments: list[str]) -> int:
    """Serve the app and save the pictures, or an album of all pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", metavar="FOLDER", type=Path, help="save every page here instead")
    folder: Path | None = parser.parse_args(arguments).all
    with ExitStack() as stack:
        store = Path(stack.enter_context(tempfile.TemporaryDirectory()), "store")
        address = stack.enter_context(serving(store))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        if folder is not None:
            save_album(browser, address, folder)
        else:
            IMAGES.mkdir(parents=True, exist_ok=True)
            save_pictures(browser, address)
            save_slurm_pictures(browser, address, store)
            save_tour(browser, address, IMAGES / "tour.gif")
        browser.close()
    return 0


def open_start(browser: Browser, address: str) -> Page:
    """Open Start in a new window of the size of the pictures."""
    page = browser.new_page(viewport={"width": PICTURE[0], "height": PICTURE[1]})
    page.set_default_timeout(60_000)
    page.goto(address)
    return page


def run_sample(page: Page) -> None:
    """Run the sample from Start."""
    page.get_by_role("button", name="Run the sample").click()
    page.get_by_text("Up to date").wait_for()
    wait_until_drawn(page)


def wait_until_drawn(page: Page) -> None:
    """Wait until the page is drawn."""
    page.wait_for_function(f"() => !document.querySelector({_BUSY!r})")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1200)


def save_pictures(browser: Browser, address: str) -> None:
    """Save the pictures of the sample, page by page."""
    page = open_start(browser, address)
    for name, steps in (
        ("tutorial-start", [wait_for_result]),
        ("compare", [run_sample]),
        ("tutorial-compare", [zoom]),
        ("tutorial-job", [leave_zoom, open_job]),
        ("tutorial-policies", [close_job, open_policies]),
        ("explore", [open_explore]),
        ("plan", [open_plan]),
    ):
        for step in steps:
            step(page)
        save_picture(page, name)
    page.close()


def save_slurm_pictures(browser: Browser, address: str, store: Path) -> None:
    """Save the pictures of the Slurm tutorial, from the comparison that its own code makes."""
    busy, quiet = run_slurm_tutorial(store)
    page = open_start(browser, address)
    for name, place, study in (
        ("slurm-trace", "trace", busy),
        ("slurm-backtest", "plan?tab=past", quiet),
        ("slurm-variants", "compare?r=1", busy),
        ("slurm-floor", "plan?tab=past", busy),
        ("slurm-export", f"compare?r=1&tab=export&high={busy.titles[1]}", busy),
    ):
        page.goto(f"{address}/{place}{'&' if '?' in place else '?'}s={study.pack()}")
        page.locator(".st-key-share button").wait_for()
        wait_until_drawn(page)
        if place.startswith("plan"):
            run_backtest(page)
        if "export" in place:
            page.get_by_role("button", name="Export configuration").scroll_into_view_if_needed()
        save_picture(page, name)
    page.close()


def run_slurm_tutorial(store: Path) -> tuple[Study, Study]:
    """Execute the Slurm tutorial up to its comparison; return the studies of both records."""
    os.environ["TRAINYARD_STORE"] = str(store)
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for block in blocks(SLURM_TUTORIAL):
            if "file" in block.options:
                Path(block.options["file"]).write_text(block.text, encoding="utf-8")
            elif block.language == "python" and "study" not in names:
                exec(block.text, names)
        busy = replace(names["study"].study, names=tuple(names["variants"]))
        jobs = names["ty"].read_trace("quiet.csv").trace
        trace = TraceSpec(f"store:{names['study'].store.put_trace(jobs)}")
    quiet = replace(names["study"].study, repeats=1)
    quiet = replace(quiet, base=replace(quiet.base, trace=trace))
    return busy, with_policies(quiet, busy.allocators[:1])


def run_backtest(page: Page) -> None:
    """Press Check on the tab Backtest of Plan and wait for the verdict."""
    page.get_by_role("button", name="Check", exact=True).click()
    wait_for_runs(page)
    page.get_by_role("heading", level=1).wait_for()
    page.mouse.move(0, 0)


def wait_for_runs(page: Page) -> None:
    """Wait until the runs of a tab of Plan have begun and ended."""
    main = page.get_by_test_id("stMain")
    main.get_by_role("button", name="Cancel").wait_for()
    main.get_by_test_id("stProgress").wait_for(state="detached", timeout=300_000)


def wait_for_result(page: Page) -> None:
    """Wait on Start until the server has prepared the result of the sample."""
    page.get_by_role("button", name="Run the sample").wait_for()
    wait_until_drawn(page)
    while not page.locator(".js-plotly-plot").count():
        page.reload()
        page.get_by_role("button", name="Run the sample").wait_for()
        wait_until_drawn(page)


def save_picture(page: Page, name: str) -> None:
    """Save the window with a palette of `MAX_COLOURS` colours."""
    wait_until_drawn(page)
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    few = shot.quantize(
        MAX_COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE, kmeans=2
    )
    few.save(IMAGES / f"{name}.png", optimize=True)


def open_page(page: Page, name: str) -> None:
    """Open another page by its name in the navigation."""
    page.get_by_role("link", name=name, exact=True).click()
    page.get_by_test_id("stMain").locator("h1, h3").first.wait_for()
    wait_until_drawn(page)


def zoom(page: Page) -> None:
    """Drag over the peak of the queue on Compare and leave the pointer inside the window."""
    x, y, width = place_of(page, page.locator("[class*=st-key-compare] .nsewdrag").first)
    page.mouse.move(x + 0.6 * width, y)
    page.mouse.down()
    page.mouse.move(x + 0.85 * width, y, steps=8)
    page.mouse.up()
    page.get_by_role("button", name="✕").wait_for()
    wait_until_drawn(page)
    page.mouse.move(x + 0.5 * width, y)


def place_of(page: Page, part: Locator) -> tuple[float, float, float]:
    """Return left edge, vertical middle and width of a part of the page."""
    part.scroll_into_view_if_needed()
    box = part.bounding_box()
    if box is None:
        raise SystemExit(f"{part} is not on {page.url}.")
    return box["x"], box["y"] + box["height"] / 2, box["width"]


def open_job(page: Page) -> None:
    """Open the job that the highlighted policy of Compare slows most."""
    page.locator(".dvn-scroller").first.click(position={"x": 20, "y": 55})
    page.get_by_role("dialog").get_by_text("Waited to start").wait_for()
    page.get_by_test_id("stMain").evaluate("main => main.scrollTo(0, 0)")
    wait_until_drawn(page)


def leave_zoom(page: Page) -> None:
    """Remove the zoom window of Compare."""
    page.get_by_role("button", name="✕").click()
    wait_until_drawn(page)


def close_job(page: Page) -> None:
    """Close the drawer of a job."""
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")


def open_policies(page: Page) -> None:
    """Open Policies."""
    open_page(page, "Policies")


def open_learn(page: Page) -> None:
    """Open Learn."""
    open_page(page, "Learn")
    page.get_by_test_id("stMain").get_by_role("radiogroup").first.wait_for()


def open_explore(page: Page) -> None:
    """Open Explore and fix an instant at the peak of the queue."""
    open_page(page, "Explore")
    page.locator(".st-key-machines .js-plotly-plot").wait_for()
    wait_until_drawn(page)
    x, y, width = place_of(page, page.locator(".st-key-machines .nsewdrag").first)
    page.mouse.click(x + 0.72 * width, y)
    page.locator(".ty-instant b").get_by_text("at day").wait_for()
    page.mouse.move(0, 0)


def open_plan(page: Page) -> None:
    """Open Plan and search the fewest nodes that keep a wait."""
    open_page(page, "Plan")
    search = page.get_by_role("button", name="Search", exact=True)
    answer = page.get_by_role("heading", name=re.compile("^(SRTF|FIFO|EASY).* needs "))
    answer.or_(search).first.wait_for()
    if search.count():  # otherwise the answer is stored
        search.click()
        wait_for_runs(page)
    answer.wait_for()
    page.mouse.move(0, 0)


def save_album(browser: Browser, address: str, folder: Path) -> None:
    """Save every page in full height."""
    folder.mkdir(parents=True, exist_ok=True)
    first = open_start(browser, address)
    run_sample(first)
    query = first.url.partition("?")[2]
    first.close()
    for scheme in SCHEMES:
        page = browser.new_page(color_scheme=scheme)
        for width in WIDTHS:
            for name, place in PLACES.items():
                page.set_viewport_size({"width": width, "height": 1000})
                page.goto(f"{address}/{place}{'&' if '?' in place else '?'}{query}")
                page.locator("h1, h3").first.wait_for()
                wait_until_drawn(page)
                for _ in range(2):  # a taller window can show more
                    page.set_viewport_size(
                        {"width": width, "height": int(page.evaluate(_HEIGHT)) + 80}
                    )
                    wait_until_drawn(page)
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png")
        page.close()


def save_tour(browser: Browser, address: str, file: Path) -> None:
    """Save the walk from the sample to the reason of one wait and to a lesson, as an animation."""
    frames = [
        Image.open(io.BytesIO(shot))
        .convert("RGB")
        .quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        for shot in walk_tour(open_start(browser, address))
    ]
    frames[0].save(
        file, save_all=True, append_images=frames[1:], duration=FRAME_MS, loop=0, optimize=True
    )
    if file.stat().st_size > MAX_BYTES:
        raise SystemExit(f"{file.name} has {file.stat().st_size:,} bytes, more than {MAX_BYTES:,}.")


def walk_tour(page: Page) -> Iterator[bytes]:
    """Yield the screenshots of the tour."""
    walk = (
        [wait_for_result],
        [run_sample],
        [zoom],
        [leave_zoom, open_job],
        [close_job, open_explore],
        [open_plan],
        [open_learn],
    )
    for steps in walk:
        for step in steps:
            step(page)
        wait_until_drawn(page)
        yield page.screenshot()
    page.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
