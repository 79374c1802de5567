"""Start the app: `python3 scripts/start.py`; makes the environment on first use, then serves on
this machine and opens the browser.
"""

from __future__ import annotations

import argparse
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path

from _venv import APP, ROOT, prepare

HOST = "127.0.0.1"
FIRST_PORT = 8501
STARTUP_S = 90.0


def is_free(port: int) -> bool:
    """Tell whether nothing listens on the port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0


def choose_port(asked: int | None) -> int:
    """Return the port that was asked for, or else the first free one from 8501 on.

    Raises
    ------
    SystemExit
        With one sentence, if the asked port, or each of the twenty tried, is in use.
    """
    tried = [asked] if asked is not None else range(FIRST_PORT, FIRST_PORT + 20)
    for port in tried:
        if is_free(port):
            return port
    where = f"Port {asked} is" if asked is not None else f"Ports {tried[0]} to {tried[-1]} are"
    raise SystemExit(
        f"{where} in use; stop the program that uses it or choose another with --port."
    )


def has_screen(platform: str, environment: Mapping[str, str]) -> bool:
    """Tell whether a browser window could open: always on Windows and macOS, with a display
    elsewhere, never in CI or over SSH.
    """
    if environment.get("CI") or environment.get("SSH_CONNECTION"):
        return False
    return platform in {"win32", "darwin"} or bool(
        environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    )


def warm(python: Path) -> None:
    """Compile the fast engine where that has not been done yet, so that no run waits for it; print
    why where that fails.
    """
    subprocess.run([str(python), "-m", "trainyard.runs.engines"], cwd=ROOT, check=False)


def serve_command(python: Path, port: int) -> list[str]:
    """Return the command line of the server; opening the browser is left to this script, which
    knows when the server answers.
    """
    return [
        str(python),
        "-m",
        "streamlit",
        "run",
        "app.py",
        "--server.headless",
        "true",
        "--server.address",
        HOST,
        "--server.port",
        str(port),
    ]


def is_healthy(port: int) -> bool:
    """Tell whether the server answers; unknown paths answer 200 too, so the body decides."""
    connection = http.client.HTTPConnection(HOST, port, timeout=2.0)
    try:
        connection.request("GET", "/_stcore/health")
        return connection.getresponse().read().strip() == b"ok"
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def serve(python: Path, port: int, *, browse: bool) -> int:
    """Run the server until it ends or Ctrl-C comes; return the exit code."""
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.default_int_handler)
    server = subprocess.Popen(serve_command(python, port), cwd=ROOT)
    address = f"http://{HOST}:{port}"
    try:
        deadline = time.monotonic() + STARTUP_S
        while server.poll() is None and time.monotonic() < deadline and not is_healthy(port):
            time.sleep(0.1)
        if server.poll() is None:
            print(f"Trainyard is at {address} (Ctrl-C stops it).", flush=True)
            if browse:
                webbrowser.open(address)
        return server.wait()
    except KeyboardInterrupt:
        _stop(server)
        return 0


def _stop(server: subprocess.Popen[bytes]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if (
        os.name != "nt"
    ):  # there Ctrl-C has reached the server already, and terminate() would cut its farewell short
        server.terminate()
    try:
        server.wait(timeout=10.0)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def main(arguments: Sequence[str]) -> int:
    """Prepare the environment and serve the app."""
    parser = argparse.ArgumentParser(
        prog="scripts/start.py", description="Start Trainyard in the browser."
    )
    parser.add_argument(
        "--port", type=int, help="port to serve on (default: the first free one from 8501 on)"
    )
    parser.add_argument("--headless", action="store_true", help="do not open a browser window")
    options = parser.parse_args(arguments)
    python = prepare(APP)
    warm(python)
    return serve(
        python,
        choose_port(options.port),
        browse=not options.headless and has_screen(sys.platform, os.environ),
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
