"""The ``app`` command: starts the dashboard in a browser."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from trainyard.cli.errors import CommandStoppedError, UsageError
from trainyard.runs.engines import load

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_FILES: Final = (_PACKAGE / "app" / "app.py", _PACKAGE.parent / "app.py")
"""Possible paths of the app: in the wheel built by setup.py, and in a checkout."""
_PORT: Final = 8501
_STOPPED: Final = (0, -signal.SIGTERM, -signal.SIGINT)
"""Exit codes of a server that was stopped by a signal."""


def add_app(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard app``."""
    parser.set_defaults(command=command_app)
    parser.add_argument(
        "--port", metavar="N", default=str(_PORT), help=f"port of the server (default {_PORT})"
    )
    parser.add_argument("--headless", action="store_true", help="do not open a browser")


def command_app(args: argparse.Namespace) -> None:
    """Execute ``app``: start to compile the fast engine, and serve the dashboard until interrupted.

    Raises
    ------
    TrainyardError
        If the port is invalid, the app is not installed, or the server exits on its own.
    """
    if not (args.port.isdecimal() and 1 <= int(args.port) <= 65_535):
        raise UsageError(f"--port {args.port}: the port must be a whole number from 1 to 65535.")
    file = next((file for file in _FILES if file.exists()), None)
    if file is None:
        raise UsageError("The app is not installed here. Install the wheel, or run in a checkout.")
    why_not = load()
    if why_not:
        sys.stderr.write(f"{why_not}\n")
    command = [sys.executable, "-m", "streamlit", "run", str(file), "--server.port", args.port]
    command += ["--server.headless", "true"] if args.headless else []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with subprocess.Popen(command) as server:
        try:
            server.wait()
        except KeyboardInterrupt:
            server.terminate()
            return
    if server.returncode not in _STOPPED:
        raise CommandStoppedError(
            "The server of the app has stopped. Read the lines above for the cause."
        )
