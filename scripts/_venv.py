"""The checkout's virtual environment, updated when the requirements change.

Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".venv"
APP = "requirements.txt"
DEV = "requirements-dev.txt"
OLDEST = (3, 11)


def refusal(version: tuple[int, ...]) -> str:
    """Return the sentence that refuses a Python version; "" for a supported one."""
    if tuple(version[:2]) >= OLDEST:
        return ""
    have, want = (".".join(map(str, parts)) for parts in (version[:3], OLDEST))
    return (
        f"Trainyard needs Python {want} or newer, but this is {have}; install a newer one and start"
        " this script with it."
    )


def interpreter(home: Path, system: str = os.name) -> Path:
    """Return the path of Python in the environment at `home`; `system` as in `os.name`."""
    return home / "Scripts" / "python.exe" if system == "nt" else home / "bin" / "python"


def requirement_files(root: Path, name: str) -> list[Path]:
    """Return a requirement file, followed by the files that it includes with ``-r``."""
    files = [root / name]
    for line in files[0].read_text(encoding="utf-8").splitlines():
        included = re.match(r"-r\s+(\S+)", line)
        if included:
            files += requirement_files(root, included.group(1))
    return files


def fingerprint(root: Path, name: str, version: tuple[int, ...]) -> str:
    """Return a hash of the requirement files, the constraints and Python's version."""
    mix = hashlib.sha256(repr(tuple(version[:2])).encode())
    for file in [*requirement_files(root, name), root / "constraints.txt"]:
        mix.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return mix.hexdigest()


def stamp(home: Path, name: str) -> Path:
    """Return the file with the fingerprint of the last complete installation."""
    return home / f"installed-{name}"


def is_current(home: Path, name: str, wanted: str, system: str = os.name) -> bool:
    """Return True if the environment exists and has exactly these requirements."""
    mark = stamp(home, name)
    return (
        interpreter(home, system).exists()
        and mark.exists()
        and mark.read_text(encoding="utf-8") == wanted
    )


def prepare(name: str, root: Path = ROOT, home: Path = HOME) -> Path:
    """Create or update the environment if needed and return its Python.

    Raises
    ------
    SystemExit
        If Python is too old, or the environment or the packages cannot be installed.
    """
    reason = refusal(sys.version_info[:3])
    if reason:
        raise SystemExit(reason)
    wanted = fingerprint(root, name, sys.version_info[:2])
    python = interpreter(home)
    if is_current(home, name, wanted):
        return python
    if not _has_pip(python):
        _create(home)
    print(
        f"Installing the packages of {name} into {home.name}; the first time takes a minute or"
        " two.",
        flush=True,
    )
    install = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "-r",
        name,
        "-c",
        "constraints.txt",
    ]
    if subprocess.run(install, cwd=root, check=False).returncode:
        raise SystemExit(
            "The packages could not be installed (see pip's output above). Check the network"
            " connection and pip's settings, then run this again."
        )
    for file in requirement_files(root, name):
        stamp(home, file.name).write_text(
            fingerprint(root, file.name, sys.version_info[:2]), encoding="utf-8"
        )
    return python


def _has_pip(python: Path) -> bool:
    """Return True if pip works in the environment."""
    return (
        python.exists()
        and not subprocess.run(
            [str(python), "-m", "pip", "--version"], capture_output=True, check=False
        ).returncode
    )


def _create(home: Path) -> None:
    """Create an empty environment with pip."""
    print(f"Creating a virtual environment in {home.name}.", flush=True)
    try:
        venv.EnvBuilder(with_pip=True, clear=True, symlinks=os.name != "nt").create(home)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(
            f"The virtual environment {home} could not be created ({error}). Make"
            " its folder writable and install Python's venv module (Debian: python3-venv)."
        ) from error
