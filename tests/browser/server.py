"""A server of the app on a free port, and the browser that is installed: for the browser tests and
the benchmarks.
"""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def chromium() -> str | None:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    return found or next((path for path in ("/usr/bin/chromium",) if Path(path).exists()), None)


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
    """Yield the address of a server on a free port; at the end all its processes are gone."""
    port = free_port()
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
    with (store.parent / f"server-{port}.log").open("wb") as log:
        server = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"TRAINYARD_STORE": str(store)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 120
            while not healthy(port):
                assert server.poll() is None, "the server ended at once"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(10)
            # What is left of its group: a server that does not stop, and workers that outlive it.
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()
