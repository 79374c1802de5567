from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
expect.set_options(timeout=20_000)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def chromium() -> str | None:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    return found or next((path for path in ("/usr/bin/chromium",) if Path(path).exists()), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        reason = "no chromium is installed (Debian, Ubuntu: apt-get install chromium)"
        if os.environ.get("TRAINYARD_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield made
        made.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/_stcore/health")
        return connection.getresponse().read().strip() == b"ok"
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@contextmanager
def serving(store: Path) -> Iterator[str]:
    """A fresh server on a free port; its address."""
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true", "--server.port", str(port)]
    with (store.parent / f"server-{port}.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"TRAINYARD_STORE": str(store)}, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 60
            while not healthy(port):
                assert server.poll() is None, "the server ended at once"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("app") / "store"


@pytest.fixture(scope="module")
def app(store: Path, browser: Browser) -> Iterator[str]:
    # The browser comes first: without one no server needs to start.
    del browser
    with serving(store) as address:
        yield address


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages of a given width; at the end none may have asked another host for anything, or shown a traceback."""
    pages: list[Page] = []
    strangers: list[str] = []

    def note(url: str) -> None:
        if not url.startswith(("http://127.0.0.1", "data:", "blob:")):
            strangers.append(url)

    def go(address: str, width: int = 1440) -> Page:
        page = browser.new_page(viewport={"width": width, "height": 1000}, accept_downloads=True)
        page.set_default_timeout(30_000)
        page.on("request", lambda request: note(request.url))
        page.goto(address)
        page.get_by_text("Save scenario").wait_for(state="attached")
        pages.append(page)
        return page

    yield go
    for page in pages:
        assert page.locator("[data-testid=stException]").count() == 0
        assert "Traceback" not in page.inner_text("body")
        page.close()
    assert strangers == []
