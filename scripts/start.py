"""Start the app: `python3 scripts/start.py` serves it on this machine and opens the browser.

The first start creates the environment.
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
    """Return True if no process listens on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0


def choose_port(requested: int | None) -> int:
    """Return the requested port, or the first free port from 8501 upwards.

    Raises
    ------
    SystemExit
        If the requested port, or each of twenty ports, is in use.
    """
    tried = [requested] if requested is not None else range(FIRST_PORT, FIRST_PORT + 20)
    for port in tried:
        if is_free(port):
            return port
    where = (
        f"Port {requested} is" if requested is not None else f"Ports {tried[0]} to {tried[-1]} are"
    )
    raise SystemExit(
        f"{where} in use. Stop the program that uses it or choose another port with --port."
    )


def has_screen(platform: str, environment: Mapping[str, str]) -> bool:
    """Return True if a browser window can open here; never in CI or over SSH."""
    if environment.get("CI") or environment.get("SSH_CONNECTION"):
        return False
    return platform in {"win32", "darwin"} or bool(
        environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    )


def warm(python: Path) -> None:
    """Compile the fast engine if needed, so that no run waits for it."""
    subprocess.run([str(python), "-m", "trainyard.runs.engines"], cwd=ROOT, check=False)


def serve_command(python: Path, port: int) -> list[str]:
    """Return the command line of the server, which does not open the browser itself."""
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
    """Return True if the server answers; the body decides, as unknown paths return 200 too."""
    connection = http.client.HTTPConnection(HOST, port, timeout=2.0)
    try:
        connection.request("GET", "/_stcore/health")
        return connection.getresponse().read().strip() == b"ok"
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def serve(python: Path, port: int, *, browse: bool) -> int:
    """Run the server until it ends or Ctrl-C is pressed; return the exit code."""
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
        _stop_server(server)
        return 0


def _stop_server(server: subprocess.Popen[bytes]) -> None:
    """Terminate the server; kill it if it does not end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.name != "nt":  # on Windows, Ctrl-C has already reached the server
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
        "--port", type=int, help="port to serve on (default: first free port from 8501)"
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
