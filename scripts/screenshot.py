"""Take the pictures of the README from the running app; with ``--all FOLDER``, every page wide and narrow, light and dark, for looking at.

A server with an empty store is started for it. The picture is docs/images/compare.png, the animation docs/images/tour.gif.
"""

from __future__ import annotations

import argparse
import io
import os
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
PICTURE: Final = (1440, 1480)
FRAME: Final = (1200, 800)
FRAME_MS: Final = 2600
COLOURS: Final = 128
MOST_BYTES: Final = 4_000_000
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
_BUSY: Final = "[data-testid=stApp][data-test-script-state=running], [data-testid=stSkeleton], [data-testid=stSpinner]"
_HEIGHT: Final = """() => Math.max(...[...document.querySelectorAll('[data-testid=stMain], [data-testid=stSidebarContent]')].map(part => part.scrollHeight))"""


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
            picture(browser, address, IMAGES / "compare.png")
            tour(browser, address, IMAGES / "tour.gif")
        browser.close()
    return 0


@contextmanager
def served() -> Iterator[str]:
    """Serve the app with an empty store; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true", "--server.port", str(port)]
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


def picture(browser: Browser, address: str, file: Path) -> None:
    """Save what Compare shows of the sample."""
    page = opened(browser, address, PICTURE)
    page.mouse.move(0, 0)
    page.screenshot(path=file)
    page.close()


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
                    page.set_viewport_size({"width": width, "height": int(page.evaluate(_HEIGHT)) + 80})
                    settled(page)
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png")
        page.close()


def tour(browser: Browser, address: str, file: Path) -> None:
    """Save the walk from the sample to the reason why one job waited, and to a lesson, as an animation."""
    frames = [Image.open(io.BytesIO(shot)).convert("RGB") for shot in _walk(browser, address)]
    drawn = [frame.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE) for frame in frames]
    drawn[0].save(file, save_all=True, append_images=drawn[1:], duration=FRAME_MS, loop=0, optimize=True)
    if file.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{file.name} has {file.stat().st_size:,} bytes, more than {MOST_BYTES:,}.")


def _walk(browser: Browser, address: str) -> Iterator[bytes]:
    page = browser.new_page(viewport={"width": FRAME[0], "height": FRAME[1]})
    page.set_default_timeout(60_000)
    page.goto(address)
    page.get_by_role("button", name="Run the sample").wait_for()
    settled(page)
    yield page.screenshot()
    page.get_by_role("button", name="Run the sample").click()
    page.get_by_text("Up to date").wait_for()
    settled(page)
    yield page.screenshot()
    yield from _window(page)
    page.get_by_role("link", name="Explore", exact=True).click()
    page.locator(".st-key-occupancy .js-plotly-plot").wait_for()
    settled(page)
    yield _at(page, page.locator(".st-key-occupancy"))
    yield _at(page, page.locator(".st-key-instant"))
    page.get_by_test_id("stDataFrame").first.click(position={"x": 20, "y": 55})
    page.get_by_text("Why it waited", exact=True).wait_for()
    settled(page)
    yield _at(page, page.get_by_text("Why it waited", exact=True))
    page.get_by_role("link", name="Learn", exact=True).click()
    page.get_by_test_id("stMain").get_by_role("radiogroup").first.wait_for()
    settled(page)
    yield page.screenshot()
    page.close()


def _window(page: Page) -> Iterator[bytes]:
    """Drag over the strip of Compare, and see the figures follow."""
    strip = page.locator("[class*=st-key-compare] .nsewdrag").first
    _at(page, strip)
    box = strip.bounding_box()
    if box is None:
        raise SystemExit("The strip of Compare has no place on the page.")
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.45 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], middle, steps=8)
    yield page.screenshot()
    page.mouse.up()
    page.get_by_role("button", name="✕").wait_for()
    settled(page)
    page.mouse.move(0, 0)
    yield _at(page, page.locator("[class*=st-key-compare]").first)
    yield _at(page, page.locator(".st-key-cdf"))


def _at(page: Page, place: Locator) -> bytes:
    """Bring something near the upper edge, and return the picture."""
    place.evaluate("part => { part.scrollIntoView(); document.querySelector('[data-testid=stMain]').scrollBy(0, -110); }")
    page.wait_for_timeout(800)
    return page.screenshot()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
