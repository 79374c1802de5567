"""Take the pictures of the documentation from the running app, and save them in docs/images.

They show the sample and the site of the Slurm tutorial, on a server with an empty store.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from contextlib import ExitStack, chdir
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

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
_BUSY: Final = (
    "[data-testid=stApp][data-test-script-state=running], [data-testid=stSkeleton],"
    " [data-testid=stSpinner]"
)


def main() -> int:
    """Serve the app and save the pictures."""
    with ExitStack() as stack:
        store = Path(stack.enter_context(tempfile.TemporaryDirectory()), "store")
        address = stack.enter_context(serving(store))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        save_pictures(browser, address)
        save_slurm_pictures(browser, address, store)
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
    """Save the pictures of the sample, page by page, and an animation of the whole tour."""
    page, tour = open_start(browser, address), []
    for name, steps in (
        ("tutorial-start", [wait_for_result]),
        ("compare", [run_sample]),
        ("tutorial-compare", [zoom]),
        ("tutorial-job", [leave_zoom, open_job]),
        ("tutorial-policies", [close_job, partial(open_page, name="Policies")]),
        ("explore", [open_explore]),
        ("plan", [open_plan]),
    ):
        for step in steps:
            step(page)
        tour.append(save_picture(page, name))
    open_learn(page)
    tour.append(take_picture(page))
    page.close()
    file, options = IMAGES / "tour.gif", {"duration": FRAME_MS, "loop": 0, "optimize": True}
    tour[0].save(file, save_all=True, append_images=tour[1:], **options)


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


def save_picture(page: Page, name: str) -> Image.Image:
    """Save the picture of the window, and return it."""
    picture = take_picture(page)
    picture.save(IMAGES / f"{name}.png", optimize=True)
    return picture


def take_picture(page: Page) -> Image.Image:
    """Return the window, once it is drawn, with a palette of 256 colors."""
    wait_until_drawn(page)
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    return shot.quantize(method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE, kmeans=2)


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
    page.get_by_role("dialog").wait_for()
    close_job(page)
    page.locator(".ty-instant b").get_by_text("Day").wait_for()
    page.mouse.move(0, 0)


def open_plan(page: Page) -> None:
    """Open Plan and search the cheapest purchase that keeps a wait."""
    page.get_by_role("link", name="Plan", exact=True).click()
    search = page.get_by_role("button", name="Search", exact=True)
    answer = page.get_by_role("heading", name=re.compile("^You own "))
    answer.or_(search).first.wait_for()
    if search.count():  # otherwise the answer is stored
        search.click()
        wait_for_runs(page)
    answer.wait_for()
    page.mouse.move(0, 0)


if __name__ == "__main__":
    sys.exit(main())
