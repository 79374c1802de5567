"""What each launcher runs, and that the app really starts, answers and stops."""

from __future__ import annotations

import os
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


def stub_subprocess(commands: list[list[str]], codes: list[int]) -> SimpleNamespace:
    """Return a stand-in for the module that notes commands and returns `codes` in order."""
    left = iter(codes)

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, next(left), "")

    return SimpleNamespace(run=run, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT)


def test_arguments_go_to_pytest_unchanged(launcher: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    test, commands = launcher("test"), list[list[str]]()
    monkeypatch.setattr(test, "prepare", lambda _: Path("python"))
    monkeypatch.setattr(test, "run_steps", lambda _: pytest.fail("no static checks here"))
    monkeypatch.setattr(test, "subprocess", stub_subprocess(commands, [5]))
    assert test.main(["-k", "mine"]) == 5
    assert commands == [["python", "-m", "pytest", "-k", "mine"]]


@pytest.mark.parametrize(
    ("arguments", "chosen"), [([], ["-m", "not slow"]), (["--all"], [])], ids=["gate", "all"]
)
@pytest.mark.parametrize(
    ("tests", "style", "expected"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (2, 1, 1)]
)
def test_tests_and_static_checks_both_decide(
    launcher: Load,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    chosen: list[str],
    tests: int,
    style: int,
    expected: int,
) -> None:
    test, commands = launcher("test"), list[list[str]]()
    monkeypatch.setattr(test, "prepare", lambda _: Path("python"))
    monkeypatch.setattr(test, "run_steps", lambda _: [("style", "unused import")] * style)
    monkeypatch.setattr(test, "subprocess", stub_subprocess(commands, [0, tests]))
    assert test.main(arguments) == expected
    compiler, command = commands
    assert compiler == ["python", "-m", "trainyard.runs.engines"]
    assert command[3:] == ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", *chosen]


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
    ("codes", "expected"),
    [([0] * 4, []), ([0, 1, 0, 0], ["format"]), ([1, 0, 1, 0], ["style", "types"])],
)
def test_check_runs_every_step_and_names_those_that_failed(
    launcher: Load, monkeypatch: pytest.MonkeyPatch, codes: list[int], expected: list[str]
) -> None:
    check, commands = launcher("check"), list[list[str]]()
    monkeypatch.setattr(check, "subprocess", stub_subprocess(commands, codes))
    failures = check.run_steps(Path("python"))
    assert len(commands) == len(codes)
    assert [name for name, _ in failures] == expected
    assert check.print_verdict(failures) == bool(expected)


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
