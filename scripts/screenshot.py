"""Take the picture of the README from the running app: starts a server with an empty store, runs the sample, saves docs/images/compare.png."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _venv import ROOT
from playwright.sync_api import sync_playwright

PICTURE = ROOT / "docs" / "images" / "compare.png"
SIZE = {"width": 1440, "height": 1240}


def shoot(address: str, picture: Path) -> None:
    """Run the sample in a browser and save what Compare shows."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        page = browser.new_page(viewport=SIZE)
        page.goto(address)
        page.get_by_role("button", name="Run the sample").click()
        page.get_by_text("Up to date").wait_for()
        page.locator(".js-plotly-plot").nth(1).wait_for()
        page.mouse.move(0, 0)
        page.wait_for_timeout(1500)
        picture.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=picture)
        browser.close()


def is_up(port: int) -> bool:
    """Tell whether something listens on the port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main() -> int:
    """Serve, shoot, stop."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true", "--server.port", str(port)]
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"TRAINYARD_STORE": folder})
        try:
            while server.poll() is None and not is_up(port):
                time.sleep(0.1)
            shoot(f"http://127.0.0.1:{port}", PICTURE)
        finally:
            server.terminate()
            server.wait(10)
    print(f"{PICTURE.relative_to(ROOT)} is written.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
