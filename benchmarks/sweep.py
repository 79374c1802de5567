"""Sweeps of the 10,000-job sample: speed-up on two workers, resuming, listing, and a search."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.unit import print_figures, round_figures
from sim.contract import Spec
from trainyard.library import library
from trainyard.library.library import HERE
from trainyard.store import Store
from trainyard.store.rows import RUN
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.size_question import SizeQuestion
from trainyard.study.study import Study
from trainyard.study.sweep import Axis, Sweep
from trainyard.sweeps.plan import PlanRun
from trainyard.sweeps.sweep_run import SweepRun
from trainyard.traces.samples import load_sample

SAMPLE: Final = "philly-like"
POLICIES: Final = ("fifo", "easy", "srtf", "las")
LOADS: Final = tuple(round(0.55 + 0.05 * step, 2) for step in range(10))
MIN_PROCESSES, MIN_DASK, MAX_STORE = 0.93, 0.88, 0.05
MAX_LISTING_S, MAX_QUESTION_S = 1.0, 60.0
STORED: Final = 1000
SPINS: Final = 25_000_000
ROUNDS: Final = 3
ROOT: Final = Path(__file__).resolve().parents[1]


def load_study(policies: tuple[str, ...] = POLICIES) -> Study:
    """Return the comparison that the sweep repeats."""
    _, cluster = load_sample(SAMPLE)
    specs = tuple(map(Spec, policies))
    return Study(Scenario(TraceSpec(f"sample:{SAMPLE}"), cluster, specs[0]), specs)


def load_sweep() -> Sweep:
    """Return the sweep of 40 cells."""
    return Sweep(load_study(), (Axis("trace.load", LOADS),))


class TimedStore(Store):
    """A store that sums the time of storing and finding numbers."""

    cpu_s = wall_s = 0.0

    def _measure(self, work: Callable[[], Any]) -> Any:
        cpu, wall = time.thread_time(), time.perf_counter()
        try:
            return work()
        finally:
            self.cpu_s += time.thread_time() - cpu
            self.wall_s += time.perf_counter() - wall

    def put_numbers(
        self, key: str, summary: Mapping[str, Any], scenario: Mapping[str, Any]
    ) -> None:
        self._measure(partial(super().put_numbers, key, summary, scenario))

    def numbers(self, *args: Any, **kwargs: Any) -> dict[str, Mapping[str, Any]]:
        return dict(self._measure(partial(super().numbers, *args, **kwargs)))


def run_sweep(where: str, servers: Sequence[psutil.Process] = ()) -> dict[str, float]:
    """Run all cells on an executor without stored results; return wall and CPU seconds.

    `servers` are processes of the executor whose CPU time counts too.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = TimedStore(folder)
        run = SweepRun(load_sweep(), store, where)
        before_s, cpu, wall = _cpu_s(servers), time.process_time(), time.perf_counter()
        run.run()
        took_s, parent_s = time.perf_counter() - wall, time.process_time() - cpu
        if run.error or run.failed:
            raise RuntimeError(run.error or str(next(iter(run.failed.values()))))
        cells = run.table()["cell_cpu_s"].to_list()
        beside_s = (
            parent_s - sum(cells)
            if where == "inline"
            else parent_s + max(_cpu_s(servers) - before_s - sum(cells), 0.0) * bool(servers)
        )
        return {
            "wall_s": took_s,
            "cells_cpu_s": sum(cells),
            "beside_cpu_s": beside_s,
            "store_cpu_s": store.cpu_s,
            "store_wall_s": store.wall_s,
            "quiet_s": _quiet_s(cells, 1 if where == "inline" else 2, beside_s),
        }


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    """Return the CPU seconds of processes so far."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _quiet_s(cells: Sequence[float], workers: int, beside_s: float) -> float:
    """Return the seconds of the cells on an idle machine: dealt to workers in order.

    The time beside the cells, `beside_s`, is shared by all workers.
    """
    free = [0.0] * workers
    for cell in cells:
        free[free.index(min(free))] += cell
    return max(free) + beside_s / workers


def spin(turns: int) -> int:
    """Run a compute-bound loop."""
    total = 0
    for turn in range(turns):
        total += turn & 7
    return total


def bare_speedup() -> float:
    """Return the speed-up of a compute-bound loop on two running processes."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(spin, [1000, 1000]))
        began = time.perf_counter()
        pool.submit(spin, SPINS).result()
        pool.submit(spin, SPINS).result()
        one = time.perf_counter() - began
        began = time.perf_counter()
        list(pool.map(spin, [SPINS, SPINS]))
        return one / (time.perf_counter() - began)


@contextmanager
def dask_cluster() -> Iterator[tuple[str, list[psutil.Process]]]:
    """Start a Dask scheduler and two workers on loopback; yield the executor and processes."""
    with (
        tempfile.TemporaryDirectory() as folder,
        (log := Path(folder) / "log").open("wb") as stream,
    ):
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TRAINYARD_STORE": f"{folder}/store",
            "OMP_NUM_THREADS": "1",
            "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
        }
        begin = [
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
        running = [
            subprocess.Popen(begin, cwd=folder, env=environment, stdout=stream, stderr=stream)
        ]
        try:
            address = _wait_for(
                lambda: re.search(r"Scheduler at:\s+tcp://([\d.:]+)", log.read_text())
            )[1]
            more = [
                sys.executable,
                "-m",
                "distributed.cli.dask_worker",
                f"tcp://{address}",
                "--nthreads",
                "1",
                "--no-nanny",
                "--no-dashboard",
            ]
            running += [
                subprocess.Popen(more, cwd=folder, env=environment, stdout=stream, stderr=stream)
                for _ in range(2)
            ]
            _wait_for(lambda: len(re.findall(r"Registered to:", log.read_text())) == 2)
            yield f"dask://{address}", [psutil.Process(process.pid) for process in running]
        finally:
            for process in reversed(running):
                process.kill()
                process.wait()


def _wait_for(poll: Callable[[], Any], most_s: float = 60.0) -> Any:
    """Return the first true result of a function that is called repeatedly."""
    deadline = time.monotonic() + most_s
    while time.monotonic() < deadline:
        if result := poll():
            return result
        time.sleep(0.1)
    raise TimeoutError(f"The condition is not met after {most_s:g} s.")


def measure_speedups(rounds: int) -> Iterator[str]:
    """Print speed-ups of both executors, measured in turns, and yield exceeded budgets.

    `quiet` is the speed-up by CPU times, as on an idle machine: other processes disturb wall times.
    """
    speedups: dict[str, list[float]] = {"processes:2": [], "dask": []}
    store: list[float] = []
    with dask_cluster() as (remote, servers):
        run_sweep(remote)
        for _ in range(rounds):
            others, before = psutil.getloadavg()[0], bare_speedup()
            inline, two, dask = (
                run_sweep("inline"),
                run_sweep("processes:2"),
                run_sweep(remote, servers),
            )
            loop = statistics.mean([before, bare_speedup()])
            store += [one["store_cpu_s"] / one["cells_cpu_s"] for one in (inline, two)]
            for name, one in (("processes:2", two), ("dask", dask)):
                speedups[name].append(inline["wall_s"] / one["wall_s"] / loop)
                print_figures(
                    place=name,
                    of_bare=round(speedups[name][-1], 3),
                    of_bare_quiet=round(inline["quiet_s"] / one["quiet_s"] / 2, 3),
                    **round_figures(one),
                )
            print_figures(
                place="inline",
                bare_speedup=round(loop, 3),
                load_of_machine=round(others, 1),
                **round_figures(inline),
            )
    medians = {name: statistics.median(values) for name, values in speedups.items()}
    share = statistics.median(store)
    print_figures(median_of_bare=round_figures(medians), store_share_of_cpu=round(share, 4))
    for name, budget in (("processes:2", MIN_PROCESSES), ("dask", MIN_DASK)):
        if medians[name] < budget:
            yield f"speed-up on {name} is {medians[name]:.2f} of a bare loop's, not {budget}"
    if share > MAX_STORE:
        yield f"storing numbers takes {share:.1%} of the time of the cells"


def check_resume() -> Iterator[str]:
    """Kill a sweep of the command line, resume it, and yield an error for repeated cells."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.json"
        file.write_text(load_sweep().canonical(), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRAINYARD_STORE": f"{folder}/store"}
        command = [
            sys.executable,
            "-m",
            "trainyard",
            "sweep",
            "--executor",
            "processes:2",
            "--yes",
            "--json",
        ]
        killed = subprocess.Popen(
            [*command, str(file)],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        store = Store(f"{folder}/store")
        _wait_for(lambda: len(store.index.rows(RUN)) >= 10 or killed.poll() is not None, 300.0)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        stored = {row.key: row.created_s for row in store.index.rows(RUN)}
        resumed = subprocess.run(
            [*command, "--resume"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        reused = int(json.loads(resumed.stdout)["known_before"])
        after = {row.key: row.created_s for row in store.index.rows(RUN)}
    again = sum(after[key] != created for key, created in stored.items())
    counts = (len(stored), reused, again, len(after))
    names = ("finished_before_kill", "known_after", "run_again", "in_all")
    print_figures(**dict(zip(names, counts, strict=True)))
    total = len(POLICIES) * len(LOADS)
    if not len(stored) < len(after) == total or reused != len(stored) or again:
        yield f"resume after a kill: {dict(zip(names, counts, strict=True))}"


def measure_listing() -> Iterator[str]:
    """Store the numbers of 1,000 runs of 100 sweeps; yield an error if listing is slow."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        one = SweepRun(Sweep(load_study(POLICIES[:1]), (Axis("seed", (0,)),)), store, "inline")
        one.run()
        row = store.index.get(RUN, one.keys[0])
        assert row is not None
        began = time.process_time()
        for at in range(STORED):
            store.put_numbers(f"{at:032x}", row.manifest["summary"], row.manifest["scenario"])
        keeping_s = (time.process_time() - began) / STORED
        for at in range(STORED // 10):
            library.shelve(
                store,
                HERE,
                Sweep(load_study(POLICIES[:1]), (Axis("seed", (at,)),)),
                [f"{at * 10 + turn:032x}" for turn in range(10)],
            )
        began = time.perf_counter()
        items = library.items(store, HERE)
        items_s, began = time.perf_counter() - began, time.perf_counter()
        rows = store.index.rows(RUN)
        rows_s = time.perf_counter() - began
        size = sum(file.stat().st_size for file in Path(folder).rglob("library.db*")) / len(rows)
    assert (len(items), len(rows)) == (STORED // 10, STORED + 1)
    print_figures(
        runs=STORED,
        keep_ms=keeping_s * 1e3,
        items_s=items_s,
        rows_s=rows_s,
        bytes_per_run=round(size),
    )
    if items_s + rows_s > MAX_LISTING_S:
        yield f"listing {STORED} runs takes {items_s + rows_s:.2f} s"


def measure_search() -> Iterator[str]:
    """Search the nodes that the sample needs under three policies; yield an error if slow."""
    for low, high in ((36, 54), (2, 20)):
        with tempfile.TemporaryDirectory() as folder:
            question = SizeQuestion(
                load_study(POLICIES[:3]), (0,), (low,), (high,), "queue_p95_s", 3600.0
            )
            run, cpu, wall = (
                PlanRun(question, Store(folder), "processes:2"),
                time.process_time(),
                time.perf_counter(),
            )
            run.run()
            took_s, parent_s = time.perf_counter() - wall, time.process_time() - cpu
            if run.error:
                raise RuntimeError(run.error)
            cells = [
                float(numbers["cell_cpu_s"]) for numbers in run.store.numbers(run.keys).values()
            ]
            quiet_s = _quiet_s(cells, 2, parent_s)
        print_figures(
            nodes=f"{low}..{high}",
            runs=run.done,
            answers={answer.policy: answer.size for answer in run.answers()},
            wall_s=took_s,
            cells_cpu_s=sum(cells),
            quiet_s=quiet_s,
        )
        if quiet_s > MAX_QUESTION_S:
            yield f"a capacity search takes {quiet_s:.0f} s on two cores"


def main(arguments: list[str]) -> list[str]:
    """Print all figures and return exceeded budgets; ``--quick`` omits the speed-ups."""
    over = [] if "--quick" in arguments else [*measure_speedups(ROUNDS)]
    return [*over, *check_resume(), *measure_listing(), *measure_search()]


if __name__ == "__main__":
    print(main(sys.argv[1:]))
