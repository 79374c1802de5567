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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil

from tests.waiting import wait_until

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


def start_server(store: Path, port: int) -> subprocess.Popen[bytes]:
    options = ["--server.headless", "true", "--server.port", str(port)]
    with (store.parent / f"server-{port}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", "app.py", *options],
            cwd=ROOT,
            env=os.environ | {"TRAINYARD_STORE": str(store)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def has_settled(server: subprocess.Popen[bytes], port: int) -> bool:
    """Return whether the server answers on `port`, or has ended; another one's answer is none."""
    if server.poll() is not None:
        return True
    with suppress(psutil.Error):
        sockets = psutil.Process(server.pid).net_connections("tcp")
        listens = any(one.laddr.port == port and one.status == "LISTEN" for one in sockets)
        return listens and healthy(port)
    return False


@contextmanager
def serving(store: Path) -> Iterator[str]:
    """Yield the address of a server on a free port; at the end all its processes are gone."""
    with ExitStack() as started:
        for _ in range(3):  # another process may take the port before the server does
            port = free_port()
            server = start_server(store, port)
            started.callback(stop_server, server)
            wait_until(partial(has_settled, server, port), "the server answers, or ends")
            if server.poll() is None:
                break
        else:
            raise AssertionError(f"The server ended at once; see {store.parent}/server-*.log.")
        yield f"http://127.0.0.1:{port}"


def stop_server(server: subprocess.Popen[bytes]) -> None:
    """Stop a server, and workers that outlive it."""
    server.terminate()
    with suppress(subprocess.TimeoutExpired):
        server.wait(10)
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
