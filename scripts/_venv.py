"""The checkout's own virtual environment: made once, filled again only when the requirements
change; standard library only.
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
    """Return why this Python cannot run Trainyard, in one sentence; "" if it can."""
    if tuple(version[:2]) >= OLDEST:
        return ""
    have, want = (".".join(map(str, parts)) for parts in (version[:3], OLDEST))
    return (
        f"Trainyard needs Python {want} or newer, but this is {have}; install a newer one and start"
        " this script with it."
    )


def interpreter(home: Path, system: str = os.name) -> Path:
    """Return where the environment at `home` keeps its Python; `system` as in `os.name`."""
    return home / "Scripts" / "python.exe" if system == "nt" else home / "bin" / "python"


def requirement_files(root: Path, name: str) -> list[Path]:
    """Return the named requirement file and, in order, those that it includes with ``-r``."""
    files = [root / name]
    for line in files[0].read_text(encoding="utf-8").splitlines():
        included = re.match(r"-r\s+(\S+)", line)
        if included:
            files += requirement_files(root, included.group(1))
    return files


def fingerprint(root: Path, name: str, version: tuple[int, ...]) -> str:
    """Return a hash of everything that decides what has to be installed: the requirement files, the
    constraints, and Python's version.
    """
    mix = hashlib.sha256(repr(tuple(version[:2])).encode())
    for file in [*requirement_files(root, name), root / "constraints.txt"]:
        mix.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return mix.hexdigest()


def stamp(home: Path, name: str) -> Path:
    """Return the file inside the environment that remembers the fingerprint of its last complete
    installation.
    """
    return home / f"installed-{name}"


def is_current(home: Path, name: str, wanted: str, system: str = os.name) -> bool:
    """Tell whether the environment is there and was filled from exactly these files."""
    mark = stamp(home, name)
    return (
        interpreter(home, system).exists()
        and mark.exists()
        and mark.read_text(encoding="utf-8") == wanted
    )


def prepare(name: str, root: Path = ROOT, home: Path = HOME) -> Path:
    """Make the environment if it is missing, fill it if the files have changed, and return its
    Python.

    Raises
    ------
    SystemExit
        With one sentence, if Python is too old, or the environment or the packages cannot be had.
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
            "The packages could not be installed (pip's own words are above); check the network"
            " connection and pip's settings, then run the same command again."
        )
    for file in requirement_files(root, name):
        stamp(home, file.name).write_text(
            fingerprint(root, file.name, sys.version_info[:2]), encoding="utf-8"
        )
    return python


def _has_pip(python: Path) -> bool:
    return (
        python.exists()
        and not subprocess.run(
            [str(python), "-m", "pip", "--version"], capture_output=True, check=False
        ).returncode
    )


def _create(home: Path) -> None:
    print(f"Making a virtual environment in {home.name}.", flush=True)
    try:
        venv.EnvBuilder(with_pip=True, clear=True, symlinks=os.name != "nt").create(home)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(
            f"The virtual environment {home} could not be made ({error}); its folder must be"
            " writable and Python's venv module complete (Debian: python3-venv)."
        ) from error
