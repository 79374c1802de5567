"""The wheel that workers of a sweep install holds everything that a run needs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import urllib.request
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("allocators", "jobtraces", "sample_traces", "sim", "trainyard", "ui")
APP = ("app.py", "pages", ".streamlit")
"""In the wheel they lie in trainyard/app/."""
FILES = (
    "pyproject.toml",
    "setup.py",
    "app.py",
    "requirements.txt",
    "requirements-scale.txt",
    "LICENSE",
    "README.md",
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy, because a build leaves files behind; return a folder with what the wheel
    holds.
    """
    if int(version("setuptools").partition(".")[0]) < 77:
        pytest.skip("setuptools 77 or later builds the wheel (requirements-dev.txt)")
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("made")
    for part in PARTS:
        shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in FILES:
        shutil.copy(ROOT / file, source)
    shutil.copytree(ROOT / "pages", source / "pages")
    (source / ".streamlit").mkdir()
    shutil.copy(ROOT / ".streamlit" / "config.toml", source / ".streamlit")
    (source / "tests").mkdir()
    (source / "tests" / "secret.py").write_text("")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "-w",
        str(made),
    ]
    done = subprocess.run(
        [*build, "."], cwd=source, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (wheel,) = made.glob("trainyard-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(made / "site")
    return made / "site"


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_data_file_and_nothing_else(installed: Path) -> None:
    def inside(folder: Path, part: str) -> set[str]:
        return {
            path.relative_to(folder).as_posix()
            for path in (folder / part).rglob("*")
            if path.is_file() and path.suffix != ".md" and "__pycache__" not in path.parts
        }

    assert {
        path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")
    } == set(PARTS)
    app = set[str]()
    for part in APP:
        found = {part} if (ROOT / part).is_file() else inside(ROOT, part)
        app |= {f"trainyard/app/{file}" for file in found}
    for part in PARTS:
        extra = app if part == "trainyard" else set()
        assert inside(installed, part) == inside(ROOT, part) | extra


SERVED = """
from pathlib import Path
from streamlit.testing.v1 import AppTest
import trainyard
app = AppTest.from_file(str(Path(trainyard.__file__).parent / "app" / "app.py"), default_timeout=300).run()
assert not app.exception, app.exception
print(len(app.button))
"""  # noqa: E501


@pytest.mark.slow
def test_the_app_starts_from_the_wheel_outside_the_checkout(
    installed: Path, tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(installed),
        "TRAINYARD_STORE": str(tmp_path / "store"),
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "trainyard", "app", "--headless", "--port", port]
    server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    try:
        wait_until(
            lambda: healthy(port) or server.poll() is not None, "the server answers, or ends"
        )
        assert server.poll() is None
    finally:
        server.terminate()
    assert server.wait(300) == 0
    assert not healthy(port)
    script = tmp_path / "served.py"
    script.write_text(f"if __name__ == '__main__':\n{textwrap.indent(SERVED, '    ')}")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) > 0


def healthy(port: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2) as answer:
            return bool(answer.read().strip() == b"ok")
    except OSError:
        return False


@pytest.mark.slow
def test_a_run_from_the_wheel_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(installed),
        "TRAINYARD_STORE": str(tmp_path / "store"),
    }
    command = [
        sys.executable,
        "-m",
        "trainyard",
        "run",
        "--trace",
        "sample:tiny",
        "--allocator",
        "fifo",
        "--json",
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["runs"][0]["completed"] == 12
    where = (
        "from trainyard.labs.lessons import reading; "
        "from trainyard.labs.replays import reading as replays; "
        "print(replays.__file__, len(reading.names()), len(replays.names()))"
    )
    told = subprocess.run(
        [sys.executable, "-c", where],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.split()
    assert Path(told[0]).is_relative_to(installed)
    (entry,) = installed.glob("trainyard-*.dist-info/entry_points.txt")
    assert "trainyard = trainyard.cli.main:main" in entry.read_text(encoding="utf-8")
    assert told[1:] == [
        str(len(list((ROOT / "trainyard" / "labs" / kind).glob("*.toml"))))
        for kind in ("lessons", "replays")
    ]
