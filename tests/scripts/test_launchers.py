"""What each launcher runs, and that the app really starts, answers and stops."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
Load = Callable[[str], ModuleType]

# The launcher as it is, in the environment that runs the tests.
START = """
import sys
from pathlib import Path
sys.path.insert(0, "scripts")
import start
start.prepare = lambda _: Path(sys.executable)
sys.exit(start.main(sys.argv[1:]))
"""


def test_test_passes_its_arguments_to_pytest(launcher: Load) -> None:
    [command] = launcher("test").test_commands(Path("python"), ["-k", "mine"])
    assert command == ["python", "-m", "pytest", "-k", "mine"]


def test_test_without_arguments_runs_everything_on_two_processes(launcher: Load) -> None:
    [fast] = launcher("test").test_commands(Path("python"), [])
    side_by_side = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    assert fast[3:] == [*side_by_side, "-m", "not slow"]
    rest, slow = launcher("test").test_commands(Path("python"), ["--all"])
    assert rest == [*fast[:-1], "not slow and not hypothesis"]
    assert slow[:-2] == [*fast[:-1], "slow or hypothesis"]
    assert slow[-2] == "--hypothesis-profile=random"
    assert re.fullmatch(r"--hypothesis-seed=\d+", slow[-1])


def test_the_nightly_run_compares_both_engines(
    launcher: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINYARD_SCENARIOS", raising=False)
    [command] = launcher("test").test_commands(Path("python"), ["--nightly"])
    assert command[-3] == "tests/properties/test_engines.py"
    assert os.environ.pop("TRAINYARD_SCENARIOS") == "10000"


def test_bench_passes_its_arguments_on(launcher: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = launcher("bench")
    seen: list[list[str]] = []
    monkeypatch.setattr(bench, "prepare", lambda _: Path("python"))

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        seen.append(command)
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(bench, "subprocess", SimpleNamespace(run=run))
    assert bench.main(["--quick"]) == 3
    assert seen == [["python", "-m", "benchmarks", "--quick"]]


@pytest.mark.parametrize(
    ("codes", "expected"), [([0] * 6, 0), ([0, 1, 0, 0, 0, 0], 1), ([1] * 6, 1)]
)
def test_check_runs_every_step_and_fails_if_one_did(
    launcher: Load, monkeypatch: pytest.MonkeyPatch, codes: list[int], expected: int
) -> None:
    check = launcher("check")
    left = list(codes)
    monkeypatch.setattr(check, "prepare", lambda _: Path("python"))

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, left.pop(0))

    monkeypatch.setattr(check, "subprocess", SimpleNamespace(run=run))
    assert check.main() == expected
    assert left == []


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"DISPLAY": "localhost:10", "SSH_CONNECTION": "a b c d"}, False),
        ("darwin", {}, True),
        ("win32", {}, True),
        ("win32", {"CI": "true"}, False),
    ],
)
def test_browser_is_opened_only_where_there_is_a_screen(
    launcher: Load, platform: str, environment: dict[str, str], expected: bool
) -> None:
    assert launcher("start").has_screen(platform, environment) is expected


def test_port_in_use_is_skipped_unless_it_was_asked_for(
    launcher: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = launcher("start")
    with socket.socket() as taken:
        taken.bind((start.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=f"Port {port} is in use"):
            start.choose_port(port)
    monkeypatch.setattr(start, "is_free", lambda port: port >= start.FIRST_PORT + 2)
    assert start.choose_port(None) == start.FIRST_PORT + 2
    monkeypatch.setattr(start, "is_free", lambda _: False)
    with pytest.raises(SystemExit, match="Ports 8501 to 8520 are in use"):
        start.choose_port(None)


def test_health_of_a_silent_port_is_no(launcher: Load) -> None:
    start = launcher("start")
    with socket.socket() as unused:
        unused.bind((start.HOST, 0))
        assert start.is_healthy(unused.getsockname()[1]) is False


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals to one process differ on Windows")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_app_starts_says_where_it_is_and_stops(
    launcher: Load, tmp_path: Path, stop: signal.Signals
) -> None:
    start = launcher("start")
    with socket.socket() as probe:
        probe.bind((start.HOST, 0))
        port = probe.getsockname()[1]
    log = tmp_path / "out"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", START, "--headless", "--port", str(port)],
            cwd=ROOT,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(
            lambda: "Ctrl-C stops it" in log.read_text() or process.poll() is not None,
            "the launcher says where the app is",
        )
        assert f"Trainyard is at http://{start.HOST}:{port}" in log.read_text()
        assert start.is_healthy(port)
        process.send_signal(stop)
        assert process.wait(timeout=300) == 0
        assert start.is_free(port)
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()
