"""Sweeps on the workers of a real Dask scheduler, in processes that must not open anything in the folder of the one that asks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lab.scenario import TraceSpec
from lab.store import Store
from lab.sweeps.executors import ExecutorError, opened
from lab.sweeps.recipe import Axis, Sweep
from lab.sweeps.running import SweepRun
from sim.trace import Trace
from tests.lab.sweeps.cases import STUDY

pytest.importorskip("distributed", reason="Dask is an extra (requirements-scale.txt)")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
FORBIDDEN = """
import os, sys
def hook(event, args):
    if event == "open" and isinstance(args[0], str) and args[0].startswith(os.environ["FORBIDDEN"]):
        os._exit(77)
sys.addaudithook(hook)
"""
"""A worker that opens a file of the parent's folder ends at once, and the sweep with it."""


@dataclass
class Machines:
    address: str
    workers: list[subprocess.Popen[bytes]]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "mine" / "store")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "sitecustomize.py").write_text(FORBIDDEN)
    told = {"PYTHONPATH": f"{elsewhere}{os.pathsep}{ROOT}", "FORBIDDEN": str(tmp_path / "mine"), "TRAINYARD_STORE": str(elsewhere / "store")}
    environment = {key: value for key, value in os.environ.items() if key != "TRAINYARD_DATABASE"} | told
    log = (elsewhere / "scheduler.log").open("wb")
    start = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show"]
    running = [subprocess.Popen(start, cwd=elsewhere, env=environment, stdout=log, stderr=log)]
    try:
        address = _address(elsewhere / "scheduler.log")
        more = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        workers = [subprocess.Popen(more, cwd=elsewhere, env=environment, stdout=log, stderr=log) for _ in range(2)]
        running += workers
        yield Machines(address.removeprefix("tcp://"), workers)
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()
        log.close()


def _address(log: Path) -> str:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if found := re.search(r"Scheduler at:\s+(tcp://[\d.:]+)", log.read_text()):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def _both_are_there(machines: Machines) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with opened(f"dask://{machines.address}") as place:
                if place.workers == 2:
                    return
        except ExecutorError:
            pass
        time.sleep(0.2)
    raise AssertionError("the workers did not come up")


def test_one_of_two_workers_is_killed_and_nothing_is_lost_or_double(machines: Machines, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # An upload: its jobs exist in the parent's folder only, and have to travel.
    trace = Trace.of(pd.DataFrame({"job_id": [f"j{at}" for at in range(300)], "submit_time_s": range(300), "num_gpus": 1, "duration_s": 50.0}), name="mine")
    study = replace(STUDY, base=replace(STUDY.base, trace=TraceSpec(f"store:{store.put_trace(trace)}")))
    sweep = Sweep(study, (Axis("seed", tuple(range(40))),))
    _both_are_there(machines)
    kept: list[str] = []
    keep = store.put_numbers

    def noted(key: str, summary: Mapping[str, Any], scenario: Mapping[str, Any]) -> None:
        kept.append(key)
        if len(kept) == 10:
            machines.workers[0].send_signal(signal.SIGKILL)
        keep(key, summary, scenario)

    monkeypatch.setattr(store, "put_numbers", noted)
    run = SweepRun(sweep, store, f"dask://{machines.address}")
    run.run()
    assert (run.error, run.state, run.done, run.of) == ("", "done", 80, 80)
    assert sorted(kept) == sorted(set(run.keys))
    assert machines.workers[1].poll() is None
    here = SweepRun(sweep, Store(store.root.parent / "again"), "inline")
    here.store.put_trace(trace)
    here.run()
    facts = ["seed", "policy", "jct_mean_s", "makespan_s", "completed", "decisions"]
    assert run.table()[facts].equals(here.table()[facts])
    # Whole results would have to be written where the workers cannot.
    refused = SweepRun(Sweep(study, (Axis("seed", (99,)),)), store, f"dask://{machines.address}", whole=True)
    refused.run()
    assert refused.state == "failed"
    assert refused.error.startswith("Workers on other machines cannot write whole results to ")


def test_a_scheduler_that_does_not_answer_is_one_sentence(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.sweeps.executors._CONNECT_S", 0.5)
    run = SweepRun(Sweep(STUDY, (Axis("seed", (1,)),)), store, "dask://127.0.0.1:1")
    run.run()
    assert run.state == "failed"
    assert run.error.startswith("No Dask scheduler answers at 127.0.0.1:1 (")
    assert run.error.endswith("Start one, or correct the address.")
