"""Sweeps on the workers of a real Dask scheduler, in processes that must not open anything in the
folder of the one that asks.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sim.result import RESULTS_VERSION
from sim.trace import Trace
from tests.trainyard.sweeps.cases import STUDY
from tests.waiting import wait_until
from trainyard.runs import executors
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.study.sweep import Axis, Sweep
from trainyard.sweeps.sweep_run import SweepRun

Client = pytest.importorskip(
    "distributed", reason="Dask is an extra (requirements-scale.txt)"
).Client
pytestmark = [pytest.mark.slow, pytest.mark.dask]

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
    """A scheduler, and workers that are started when a test needs them; a test gets what it asks
    for, whatever an earlier one has killed.
    """

    folder: Path
    environment: dict[str, str]
    address: str = ""
    scheduler: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "distributed.cli.dask_worker",
            f"tcp://{self.address}",
            "--nthreads",
            "1",
            "--no-nanny",
            "--no-dashboard",
        ]
        self.workers.append(self._run(command, "workers.log", more))
        return self.workers[-1]

    def staffed(self, count: int) -> list[subprocess.Popen[bytes]]:
        """So many workers that answer: those that live, and new ones."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < count:
            self.start()
        _end(self.workers[count:])
        _wait_for(self, count)
        self.workers = self.workers[:count]
        return self.workers

    def awake(self) -> None:
        """A scheduler that runs."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            self.close()
            (self.folder / "scheduler.log").unlink(missing_ok=True)
            start = [
                sys.executable,
                "-m",
                "distributed.cli.dask_scheduler",
                "--host",
                "127.0.0.1",
                "--port",
                "0",
                "--no-dashboard",
                "--no-show",
            ]
            self.scheduler = self._run(start, "scheduler.log", {})
            self.address = _address(self.folder / "scheduler.log").removeprefix("tcp://")

    def close(self) -> None:
        _end([*self.workers, *([self.scheduler] if self.scheduler else [])])
        self.workers.clear()

    def _run(self, command: list[str], log: str, more: dict[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("ab") as file:
            return subprocess.Popen(
                command, cwd=self.folder, env=self.environment | more, stdout=file, stderr=file
            )

    @property
    def place(self) -> str:
        return f"dask://{self.address}"


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def store(machines: Machines, tmp_path: Path) -> Store:
    return Store(Path(machines.environment["FORBIDDEN"]) / tmp_path.name)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    elsewhere, mine = tmp_path_factory.mktemp("elsewhere"), tmp_path_factory.mktemp("mine")
    (elsewhere / "sitecustomize.py").write_text(FORBIDDEN)
    # The database that the environment names is not for what a worker unpacks: it would list files
    # that nobody else has.
    told = {
        "PYTHONPATH": f"{elsewhere}{os.pathsep}{ROOT}",
        "FORBIDDEN": str(mine),
        "TRAINYARD_DATABASE": f"sqlite:///{mine / 'library.db'}",
    }
    made = Machines(
        elsewhere, dict(os.environ) | told | {"TRAINYARD_STORE": str(elsewhere / "store")}
    )
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def machines(room: Machines) -> Machines:
    room.awake()
    return room


def _address(log: Path) -> str:
    return wait_until(
        lambda: re.search(r"Scheduler at:\s+(tcp://[\d.:]+)", log.read_text()),
        "the scheduler says where it is",
    )[1]


def _wait_for(machines: Machines, workers: int) -> None:
    with Client(f"tcp://{machines.address}", set_as_default=False) as client:
        wait_until(
            lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == workers,
            f"{workers} workers are there",
        )


def failure(sweep: Sweep, store: Store, where: str) -> str:
    run = SweepRun(sweep, store, where)
    run.run()
    assert (run.state, run.done) == ("failed", 0)
    return run.error


def test_a_scheduler_without_workers_or_with_other_ones_is_one_sentence(
    machines: Machines, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep(STUDY, (Axis("seed", (1,)),))
    machines.staffed(0)
    assert failure(sweep, store, machines.place).endswith(
        f"has no workers. Start some there with 'dask worker {machines.address} --preload"
        " trainyard.runs.preload'."
    )
    without = machines.start(PYTHONPATH=str(machines.folder))
    _wait_for(machines, 1)
    told = failure(sweep, store, machines.place)
    assert "cannot load Trainyard" in told
    assert told.endswith("Install the same wheel there as here.")
    _end([without])
    machines.staffed(2)
    monkeypatch.setattr(executors, "RESULTS_VERSION", 9999)
    told = failure(sweep, store, machines.place)
    assert (
        f"has another version of Trainyard (results {RESULTS_VERSION}, here 9999). Install the same"
        " there." in told
    )


def test_one_of_two_workers_is_killed_and_nothing_is_lost_or_double(
    machines: Machines, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An upload: its jobs exist in the parent's folder only, and have to travel.
    trace = Trace.of(
        pd.DataFrame(
            {
                "job_id": [f"j{at}" for at in range(300)],
                "submit_time_s": range(300),
                "num_gpus": 1,
                "duration_s": 50.0,
            }
        ),
        name="mine",
    )
    study = replace(
        STUDY, base=replace(STUDY.base, trace=TraceSpec(f"store:{store.put_trace(trace)}"))
    )
    sweep = Sweep(study, (Axis("seed", tuple(range(25))),))
    lost, left = machines.staffed(2)
    kept: list[str] = []
    keep = store.put_numbers

    def noted(key: str, summary: Mapping[str, Any], scenario: Mapping[str, Any]) -> None:
        kept.append(key)
        if len(kept) == 10:
            lost.send_signal(signal.SIGKILL)
        keep(key, summary, scenario)

    monkeypatch.setattr(store, "put_numbers", noted)
    run = SweepRun(sweep, store, machines.place)
    run.run()
    assert (run.error, run.state, run.done, run.total) == ("", "done", 50, 50)
    assert sorted(kept) == sorted(set(run.keys))
    assert left.poll() is None
    here = SweepRun(sweep, Store(store.root.parent / "again"), "inline")
    here.store.put_trace(trace)
    here.run()
    facts = ["seed", "policy", "jct_mean_s", "makespan_s", "completed", "decisions"]
    assert run.table()[facts].equals(here.table()[facts])
    # Whole results would have to be written where the workers cannot.
    refused = SweepRun(Sweep(study, (Axis("seed", (99,)),)), store, machines.place, whole=True)
    refused.run()
    assert refused.state == "failed"
    assert refused.error.startswith("Workers on other machines cannot write whole results to ")


def test_a_scheduler_that_dies_ends_the_sweep_with_a_sentence_and_what_is_done_is_kept(
    machines: Machines, store: Store
) -> None:
    sweep = Sweep(STUDY, (Axis("seed", tuple(range(100))),))
    machines.staffed(2)
    run = SweepRun(sweep, store, machines.place)
    run.start()
    while run.done < 5:
        assert not run.wait(0.01), run.error
    assert machines.scheduler is not None
    assert machines.scheduler is not None
    assert machines.scheduler is not None
    machines.scheduler.kill()
    assert run.wait(300)
    assert (run.state, run.error) == (
        "failed",
        "The machines of these runs were lost. Finished runs are kept. Start again to continue.",
    )
    assert len(store.numbers(run.keys)) == run.done == len(run.table())
    assert 5 <= run.done < 200


@pytest.mark.parametrize("others", [{}, {"tcp://b": executors._version()}])
def test_a_worker_that_goes_while_it_is_asked_is_lost_like_any_other(
    others: dict[str, object],
) -> None:
    from distributed.comm.core import CommClosedError  # noqa: PLC0415 - an extra

    class Leaving:
        def run(self, *_: object, **__: object) -> dict[str, object]:
            return {"tcp://a": CommClosedError("in <TCP (closed)>: Stream is closed"), **others}

        def scheduler_info(self, **_: object) -> dict[str, object]:
            return {"workers": {where: {"nthreads": 1} for where in others}}

    if others:
        executors._check_workers(Leaving(), "x:1")
    else:
        with pytest.raises(executors.ExecutorError, match="has no workers"):
            executors._check_workers(Leaving(), "x:1")


def test_a_scheduler_that_does_not_answer_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.runs.executors._CONNECT_S", 0.5)
    told = failure(Sweep(STUDY, (Axis("seed", (1,)),)), Store(tmp_path), "dask://127.0.0.1:1")
    assert told.startswith("No Dask scheduler answers at 127.0.0.1:1 (")
    assert told.endswith("Start one or fix the address.")
