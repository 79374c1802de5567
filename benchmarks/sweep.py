"""Sweeps of the 10,000-job sample: speed-up on two processes and on Dask against that of a bare
loop; the store, resuming, listing, a question of capacity.
"""

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
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import psutil

from sim.contract import Spec
from trainyard.library import library
from trainyard.library.library import HERE
from trainyard.store import Store
from trainyard.store.index import RUN
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.search import SizeQuestion
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


def study(policies: tuple[str, ...] = POLICIES) -> Study:
    """Return the comparison that is repeated."""
    _, cluster = load_sample(SAMPLE)
    specs = tuple(map(Spec, policies))
    return Study(Scenario(TraceSpec(f"sample:{SAMPLE}"), cluster, specs[0]), specs)


def sweep() -> Sweep:
    """Return the 40 cells."""
    return Sweep(study(), (Axis("trace.load", LOADS),))


class TimedStore(Store):
    """A store that adds up what it costs to keep numbers and to look for them."""

    cpu_s = wall_s = 0.0

    def _timed(self, work: Callable[[], Any]) -> Any:
        cpu, wall = time.thread_time(), time.perf_counter()
        try:
            return work()
        finally:
            self.cpu_s += time.thread_time() - cpu
            self.wall_s += time.perf_counter() - wall

    def put_numbers(
        self, key: str, summary: Mapping[str, Any], scenario: Mapping[str, Any]
    ) -> None:
        self._timed(lambda: super(TimedStore, self).put_numbers(key, summary, scenario))

    def numbers(self, *args: Any, **kwargs: Any) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = self._timed(
            lambda: super(TimedStore, self).numbers(*args, **kwargs)
        )
        return found


def swept(where: str, serving: Sequence[psutil.Process] = ()) -> dict[str, float]:
    """Run the cells at a place, nothing being known before; return what it took, with the processor
    time of those that serve the place.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = TimedStore(folder)
        run = SweepRun(sweep(), store, where)
        before_s, cpu, wall = _cpu_s(serving), time.process_time(), time.perf_counter()
        run.run()
        took_s, parent_s = time.perf_counter() - wall, time.process_time() - cpu
        if run.error or run.failed:
            raise RuntimeError(run.error or str(next(iter(run.failed.values()))))
        cells = run.table()["cell_cpu_s"].to_list()
        beside_s = (
            parent_s - sum(cells)
            if where == "inline"
            else parent_s + max(_cpu_s(serving) - before_s - sum(cells), 0.0) * bool(serving)
        )
        found = {
            "wall_s": took_s,
            "cells_cpu_s": sum(cells),
            "beside_cpu_s": beside_s,
            "store_cpu_s": store.cpu_s,
            "store_wall_s": store.wall_s,
        }
        return found | {"quiet_s": _quiet_s(cells, 1 if where == "inline" else 2, beside_s)}


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _quiet_s(cells: Sequence[float], workers: int, beside_s: float) -> float:
    """Return how long the cells would take on a machine with nothing else to do: dealt out in
    order, what is done beside them shared by the cores.
    """
    free = [0.0] * workers
    for cell in cells:
        free[free.index(min(free))] += cell
    return max(free) + beside_s / workers


def spin(turns: int) -> int:
    """Do nothing but compute."""
    total = 0
    for turn in range(turns):
        total += turn & 7
    return total


def bare() -> float:
    """Return the speed-up of a bare loop on two processes that are up already."""
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
def dask_machines() -> Iterator[tuple[str, list[psutil.Process]]]:
    """Start a Dask scheduler and two workers on loopback; yield their place, and them."""
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
            address = _when(lambda: re.search(r"Scheduler at:\s+tcp://([\d.:]+)", log.read_text()))[
                1
            ]
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
            _when(lambda: len(re.findall(r"Registered to:", log.read_text())) == 2)
            yield f"dask://{address}", [psutil.Process(process.pid) for process in running]
        finally:
            for process in reversed(running):
                process.kill()
                process.wait()


def _when(found: Callable[[], Any], most_s: float = 60.0) -> Any:
    deadline = time.monotonic() + most_s
    while time.monotonic() < deadline:
        if there := found():
            return there
        time.sleep(0.1)
    raise TimeoutError(f"nothing after {most_s:g} s")


def speed(rounds: int) -> list[str]:
    """Print the speed-ups, measured by turns, and return what is over its budget.

    Beside each is what processor times say of a machine with nothing else to do (`quiet`), because
    the clock is no judge where others want the cores too.
    """
    found: dict[str, list[float]] = {"processes:2": [], "dask": []}
    store: list[float] = []
    with dask_machines() as (remote, machines):
        swept(remote)
        for _ in range(rounds):
            others, before = psutil.getloadavg()[0], bare()
            inline, two, dask = swept("inline"), swept("processes:2"), swept(remote, machines)
            loop = statistics.mean([before, bare()])
            store += [one["store_cpu_s"] / one["cells_cpu_s"] for one in (inline, two)]
            for name, one in (("processes:2", two), ("dask", dask)):
                found[name].append(inline["wall_s"] / one["wall_s"] / loop)
                quiet = inline["quiet_s"] / one["quiet_s"] / 2
                print(
                    json.dumps(
                        {
                            "place": name,
                            "of_bare": round(found[name][-1], 3),
                            "of_bare_quiet": round(quiet, 3),
                            **_rounded(one),
                        }
                    ),
                    flush=True,
                )
            print(
                json.dumps(
                    {
                        "place": "inline",
                        "bare_speedup": round(loop, 3),
                        "load_of_machine": round(others, 1),
                        **_rounded(inline),
                    }
                ),
                flush=True,
            )
    told = {name: statistics.median(values) for name, values in found.items()}
    share = statistics.median(store)
    print(
        json.dumps({"median_of_bare": _rounded(told), "store_share_of_cpu": round(share, 4)}),
        flush=True,
    )
    budgets = {"processes:2": MIN_PROCESSES, "dask": MIN_DASK}
    over = [
        f"speed-up on {name} is {value:.2f} of a bare loop's, not {budgets[name]}"
        for name, value in told.items()
        if value < budgets[name]
    ]
    return over + (
        [f"keeping numbers takes {share:.1%} of the time of the cells"] if share > MAX_STORE else []
    )


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items()}


def resuming() -> list[str]:
    """Kill a sweep of the command line with everything it started, go on with it, and return an
    error if a finished cell was run again.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.json"
        file.write_text(sweep().canonical(), encoding="utf-8")
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
        begun = subprocess.Popen(
            [*command, str(file)],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        store = Store(f"{folder}/store")
        _when(lambda: len(store.index.rows(RUN)) >= 10 or begun.poll() is not None, 300.0)
        begun.send_signal(signal.SIGKILL)
        begun.wait()
        kept = {row.key: row.created_s for row in store.index.rows(RUN)}
        done = subprocess.run(
            [*command, "--resume"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        known = int(json.loads(done.stdout)["known_before"])
        after = {row.key: row.created_s for row in store.index.rows(RUN)}
    again = sum(after[key] != created for key, created in kept.items())
    print(
        json.dumps(
            {
                "finished_before_kill": len(kept),
                "known_after": known,
                "run_again": again,
                "in_all": len(after),
            }
        ),
        flush=True,
    )
    ok = len(kept) < len(after) == len(POLICIES) * len(LOADS) and known == len(kept) and not again
    return (
        []
        if ok
        else [
            f"after a kill {len(kept)} cells were finished, {known} known, {again} run again,"
            f" {len(after)} there in the end"
        ]
    )


def listing() -> list[str]:
    """Keep the numbers of 1,000 runs of 100 sweeps, and return an error if listing them takes too
    long.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        one = SweepRun(Sweep(study(POLICIES[:1]), (Axis("seed", (0,)),)), store, "inline")
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
                Sweep(study(POLICIES[:1]), (Axis("seed", (at,)),)),
                [f"{at * 10 + turn:032x}" for turn in range(10)],
            )
        began = time.perf_counter()
        found = library.items(store, HERE)
        items_s, began = time.perf_counter() - began, time.perf_counter()
        rows = store.index.rows(RUN)
        rows_s = time.perf_counter() - began
        size = sum(file.stat().st_size for file in Path(folder).rglob("library.db*")) / len(rows)
    assert (len(found), len(rows)) == (STORED // 10, STORED + 1)
    print(
        json.dumps(
            {
                "runs": STORED,
                "keep_ms": keeping_s * 1e3,
                "items_s": items_s,
                "rows_s": rows_s,
                "bytes_per_run": round(size),
            }
        ),
        flush=True,
    )
    return (
        [f"listing {STORED} runs takes {items_s + rows_s:.2f} s"]
        if items_s + rows_s > MAX_LISTING_S
        else []
    )


def asking() -> list[str]:
    """Ask how many nodes the sample needs under three policies, and return an error if that takes
    too long.
    """
    over = []
    for low, high in ((36, 54), (2, 20)):
        with tempfile.TemporaryDirectory() as folder:
            question = SizeQuestion(
                study(POLICIES[:3]), (0,), (low,), (high,), "queue_p95_s", 3600.0
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
        sizes = {answer.policy: answer.size for answer in run.answers()}
        row = {
            "nodes": f"{low}..{high}",
            "runs": run.done,
            "answers": sizes,
            "wall_s": took_s,
            "cells_cpu_s": sum(cells),
            "quiet_s": quiet_s,
        }
        print(json.dumps(row), flush=True)
        over += (
            [f"a question of capacity takes {quiet_s:.0f} s on two cores"]
            if quiet_s > MAX_QUESTION_S
            else []
        )
    return over


def main(arguments: list[str]) -> list[str]:
    """Print all figures and return what is over its budget; ``--quick`` leaves out the
    speed-ups.
    """
    over = [] if "--quick" in arguments else speed(ROUNDS)
    return over + resuming() + listing() + asking()


if __name__ == "__main__":
    print(main(sys.argv[1:]))
