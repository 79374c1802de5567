"""What the pool tests let a worker do instead of simulating; the scenario's name says what."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from sim.engine.simulator import Progress
from sim.errors import InfeasiblePlan
from trainyard.runs.queue import Submission
from trainyard.study.scenario import Scenario

MAX_LOOKS = 100_000
"""A run that the test does not release ends after ten minutes or more."""


def act(document: Mapping[str, Any], root: str, progress: Callable[[Progress], None]) -> str:
    what, _, argument = str(document["name"]).partition(" ")
    before = [(name, seed) for name, seed, _ in ran(Path(root))]
    log_begin(document, root)
    if what == "hold":
        hold(root, int(document["seed"]), progress)
    elif what == "infeasible":
        raise InfeasiblePlan("Fifo asked for 9 GPUs at 5 s; 8 are free.", {"now_s": 5.0})
    elif what == "fault":
        raise KeyError("gone")
    elif what == "memory":
        raise MemoryError
    elif what == "die" and before.count((document["name"], document["seed"])) < int(argument):
        os.kill(os.getpid(), signal.SIGKILL)
    return Scenario.from_json(document).key("0" * 32)


def log_begin(document: Mapping[str, Any], root: str) -> None:
    Path(root).mkdir(parents=True, exist_ok=True)
    with (Path(root) / "log.txt").open("a", encoding="utf-8") as log:
        log.write(f"{document['name']}|{document['seed']}|{os.getpid()}\n")


def hold(root: str, seed: int, progress: Callable[[Progress], None] | None = None) -> None:
    """Report progress until the test releases the seed."""
    for done in range(MAX_LOOKS):
        if (Path(root) / f"released-{seed}").exists():
            return
        if progress is not None:
            progress(Progress(done, 1_000_000, 0.5 * done, 100.0))
        time.sleep(0.005)


def release(root: Path, *seeds: int) -> None:
    """Let the runs of these seeds end that `hold` keeps or will keep."""
    root.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (root / f"released-{seed}").touch()


def ran(root: Path) -> list[tuple[str, int, int]]:
    """Return (name, seed, process) of everything that was begun."""
    path = root / "log.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [
        (line.split("|")[0], int(line.split("|")[1]), int(line.split("|")[2])) for line in lines
    ]


def wait_all(jobs: list[Submission], timeout_s: float = 300.0) -> bool:
    """Block until all jobs are settled; tell whether they are."""
    end = time.monotonic() + timeout_s
    return all(job.wait(max(0.0, end - time.monotonic())) for job in jobs)


def has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
