"""Take the pictures of the documentation from the running app; with ``--all FOLDER``, every page
wide and narrow, light and dark, for looking at.

A server with an empty store is started for it. The pictures of the sample and the animation
tour.gif go to docs/images.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from _venv import ROOT
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, sync_playwright

IMAGES: Final = ROOT / "docs" / "images"
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
"""Name of a picture -> where it is taken."""
_BUSY: Final = (
    "[data-testid=stApp][data-test-script-state=running], [data-testid=stSkeleton],"
    " [data-testid=stSpinner]"
)
_HEIGHT: Final = "() => document.querySelector('[data-testid=stMain]').scrollHeight"


def main(arguments: list[str]) -> int:
    """Serve, shoot, stop."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--all", metavar="FOLDER", type=Path, help="save every page here instead")
    folder: Path | None = asked.parse_args(arguments).all
    with served() as address, sync_playwright() as playwright:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        if folder is not None:
            album(browser, address, folder)
        else:
            IMAGES.mkdir(parents=True, exist_ok=True)
            pictures(browser, address)
            tour(browser, address, IMAGES / "tour.gif")
        browser.close()
    return 0


@contextmanager
def served() -> Iterator[str]:
    """Serve the app with an empty store; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        "app.py",
        "--server.headless",
        "true",
        "--server.port",
        str(port),
    ]
    with tempfile.TemporaryDirectory() as store:
        server = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"TRAINYARD_STORE": store})
        try:
            while server.poll() is None and not is_up(port):
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(10)


def is_up(port: int) -> bool:
    """Tell whether something listens on the port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def opened(browser: Browser, address: str, size: tuple[int, int]) -> Page:
    """Open a window of that many pixels, and run the sample in it."""
    page = browser.new_page(viewport={"width": size[0], "height": size[1]})
    page.set_default_timeout(60_000)
    page.goto(address)
    page.get_by_role("button", name="Run the sample").click()
    page.get_by_text("Up to date").wait_for()
    settled(page)
    return page


def settled(page: Page) -> None:
    """Wait until nothing is being drawn."""
    page.wait_for_function(f"() => !document.querySelector({_BUSY!r})")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1200)


def pictures(browser: Browser, address: str) -> None:
    """Save what is seen of the sample, page by page."""
    page = browser.new_page(viewport={"width": PICTURE[0], "height": PICTURE[1]})
    page.set_default_timeout(60_000)
    page.goto(address)
    has_result(page)
    save(page, "tutorial-start")
    page.close()
    page = opened(browser, address, PICTURE)
    save(page, "compare")
    zoom(page)
    save(page, "tutorial-compare")
    page.get_by_role("button", name="✕").click()
    settled(page)
    job(page)
    save(page, "tutorial-job")
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    go(page, "Policies")
    save(page, "tutorial-policies")
    explore(page)
    save(page, "explore")
    plan(page)
    save(page, "plan")
    page.close()


def has_result(page: Page) -> None:
    """Wait on Start until the server has prepared the result of the sample."""
    page.get_by_role("button", name="Run the sample").wait_for()
    settled(page)
    while not page.locator(".js-plotly-plot").count():
        page.reload()
        page.get_by_role("button", name="Run the sample").wait_for()
        settled(page)


def save(page: Page, name: str) -> None:
    """Save what the window shows, with as few colours as can be without being seen."""
    settled(page)
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    few = shot.quantize(
        MAX_COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE, kmeans=2
    )
    few.save(IMAGES / f"{name}.png", optimize=True)


def go(page: Page, name: str) -> None:
    """Open another page by its name in the navigation."""
    page.get_by_role("link", name=name, exact=True).click()
    page.get_by_test_id("stMain").locator("h1, h3").first.wait_for()
    settled(page)


def zoom(page: Page) -> None:
    """Drag over the peak of the queue on Compare, and leave the pointer where it is read."""
    x, y, width = place_of(page, page.locator("[class*=st-key-compare] .nsewdrag").first)
    page.mouse.move(x + 0.6 * width, y)
    page.mouse.down()
    page.mouse.move(x + 0.85 * width, y, steps=8)
    page.mouse.up()
    page.get_by_role("button", name="✕").wait_for()
    settled(page)
    page.mouse.move(x + 0.5 * width, y)


def place_of(page: Page, part: Locator) -> tuple[float, float, float]:
    """Return the left edge, the middle in height, and the width of a part of the page."""
    part.scroll_into_view_if_needed()
    box = part.bounding_box()
    if box is None:
        raise SystemExit(f"{part} has no place on {page.url}.")
    return box["x"], box["y"] + box["height"] / 2, box["width"]


def job(page: Page) -> None:
    """Open the job that the highlighted policy of Compare slows most, below its figures."""
    table = page.get_by_test_id("stDataFrame").first
    table.scroll_into_view_if_needed()
    table.click(position={"x": 20, "y": 55})
    page.get_by_role("dialog").get_by_text("Waited to start").wait_for()
    page.get_by_test_id("stMain").evaluate("main => main.scrollTo(0, 0)")
    settled(page)


def explore(page: Page) -> None:
    """Open Explore, and fix an instant at the peak of the queue."""
    go(page, "Explore")
    page.locator(".st-key-machines .js-plotly-plot").wait_for()
    settled(page)
    x, y, width = place_of(page, page.locator(".st-key-machines .nsewdrag").first)
    page.mouse.click(x + 0.72 * width, y)
    page.locator(".ty-instant b").get_by_text("at day").wait_for()
    page.mouse.move(0, 0)


def plan(page: Page) -> None:
    """Open Plan, and search the fewest nodes for a wait."""
    go(page, "Plan")
    search = page.get_by_role("button", name="Search", exact=True)
    answer = page.get_by_role("heading", name=re.compile("^(SRTF|FIFO|EASY).* needs "))
    answer.or_(search).first.wait_for()
    if search.count():  # else the answer is stored
        search.click()
        page.get_by_test_id("stMain").get_by_role("button", name="Cancel").wait_for()
        page.get_by_test_id("stMain").get_by_test_id("stProgress").wait_for(
            state="detached", timeout=300_000
        )
    answer.wait_for()
    page.mouse.move(0, 0)


def album(browser: Browser, address: str, folder: Path) -> None:
    """Save every page from top to bottom."""
    folder.mkdir(parents=True, exist_ok=True)
    first = opened(browser, address, PICTURE)
    query = first.url.partition("?")[2]
    first.close()
    for scheme in SCHEMES:
        page = browser.new_page(color_scheme=scheme)
        for width in WIDTHS:
            for name, place in PLACES.items():
                page.set_viewport_size({"width": width, "height": 1000})
                page.goto(f"{address}/{place}{'&' if '?' in place else '?'}{query}")
                page.locator("h1, h3").first.wait_for()
                settled(page)
                for _ in range(2):  # a taller window may have more in it
                    page.set_viewport_size(
                        {"width": width, "height": int(page.evaluate(_HEIGHT)) + 80}
                    )
                    settled(page)
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png")
        page.close()


def tour(browser: Browser, address: str, file: Path) -> None:
    """Save the walk from the sample to the reason why one job waited, and to a lesson, as an
    animation.
    """
    frames = [Image.open(io.BytesIO(shot)).convert("RGB") for shot in _walk(browser, address)]
    drawn = [
        frame.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        for frame in frames
    ]
    drawn[0].save(
        file, save_all=True, append_images=drawn[1:], duration=FRAME_MS, loop=0, optimize=True
    )
    if file.stat().st_size > MAX_BYTES:
        raise SystemExit(f"{file.name} has {file.stat().st_size:,} bytes, more than {MAX_BYTES:,}.")


def _walk(browser: Browser, address: str) -> Iterator[bytes]:
    page = browser.new_page(viewport={"width": PICTURE[0], "height": PICTURE[1]})
    page.set_default_timeout(60_000)
    page.goto(address)
    has_result(page)
    settled(page)
    yield page.screenshot()
    page.get_by_role("button", name="Run the sample").click()
    page.get_by_text("Up to date").wait_for()
    settled(page)
    yield page.screenshot()
    zoom(page)
    settled(page)
    yield page.screenshot()
    page.get_by_role("button", name="✕").click()
    settled(page)
    job(page)
    yield page.screenshot()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    explore(page)
    settled(page)
    yield page.screenshot()
    plan(page)
    settled(page)
    yield page.screenshot()
    go(page, "Learn")
    page.get_by_test_id("stMain").get_by_role("radiogroup").first.wait_for()
    settled(page)
    yield page.screenshot()
    page.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
