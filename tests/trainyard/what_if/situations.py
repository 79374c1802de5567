"""Instants and lives of jobs in runs worked out by hand, by name, in the words of Explore."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import pandas as pd

from allocators import make
from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.engine.simulator import Simulator
from sim.params import Spec
from sim.trace import Trace
from tests.sim.metrics.metrics_cases import (
    FIVE,
    Held,
    Job,
    cluster_of,
    failures_of,
    five,
    run_of,
    trace_of,
)
from trainyard.what_if import explore, reasons
from trainyard.what_if.explore import Book
from trainyard.what_if.statements import Witness

TWO: Final = Cluster.parse("2x4:v100")


def book_of(trace: Trace, cluster: Cluster, spec: str, **more: Any) -> Book:
    allocator = make(Spec.parse(spec))
    result = Simulator(trace, cluster, allocator, Conditions(**more)).run()
    return Book(result, trace, cluster, spec, allocator.needs)


def three(**columns: object) -> Trace:
    """Job a: 4 GPUs for an hour; b, 10 minutes later: 8 GPUs for 30 minutes; c, 20 minutes later: 2
    GPUs for 3 hours.
    """
    frame = {
        "job_id": ["a", "b", "c"],
        "submit_time_s": [0.0, 600.0, 1200.0],
        "num_gpus": [4, 8, 2],
        "duration_s": [3600.0, 1800.0, 10_800.0],
    }
    return Trace.of(pd.DataFrame({**frame, "user": ["ann", "bob", "cy"], **columns}))


def queue() -> Trace:
    """Six jobs of three users on 8 GPUs, of which `wide` wants all and `late` comes last."""
    rows = [
        ("first", 0.0, 4, 7200.0, "ann"),
        ("long", 60.0, 2, 21_600.0, "bob"),
        ("wide", 120.0, 8, 1800.0, "cy"),
        ("next", 180.0, 4, 3600.0, "ann"),
        ("small", 240.0, 2, 600.0, "bob"),
        ("late", 300.0, 4, 5400.0, "ann"),
    ]
    names = ["job_id", "submit_time_s", "num_gpus", "duration_s", "user"]
    return Trace.of(pd.DataFrame(rows, columns=names))


@cache
def by_hand() -> Book:
    """Return the run of five jobs that the tests of metrics work out."""
    return Book(five(), trace_of(FIVE), cluster_of(), "by hand")


def hit_and_resized() -> Book:
    """Return a run of one job that is evicted twice, resized, and loses a worker."""
    rows = [
        (30.0, 0, 1.0, 0, "oom", "server"),
        (70.0, 0, 0.0, 1, "interruption", "worker"),
        (80.0, 0, 0.0, 0, "outage", "worker"),
    ]
    pieces = [
        Held(0, 0, 30, 2, ended="evicted"),
        Held(0, 40, 50, 2, node=1),
        Held(0, 50, 80, 1, node=1, ended="evicted"),
    ]
    jobs = [Job(0, 2, 0, outcome="failed", evictions=2)]
    result = run_of(jobs, pieces, 90.0, failures=failures_of(rows))
    return Book(result, trace_of(jobs), cluster_of(), "rough")


def preempted_often() -> Book:
    """Return a run of one job that is preempted every 20 s."""
    pieces = [Held(0, 20.0 * at, 20.0 * at + 10, 2, ended="preempted") for at in range(20)]
    jobs = [Job(0, 2, 0, outcome="unfinished")]
    return Book(run_of(jobs, pieces, 400.0), trace_of(jobs), cluster_of(), "x")


def beyond_the_cluster() -> Book:
    """Return a recording that holds 2 GPUs more than there are."""
    jobs = [Job(0, 5, 0, 10)]
    result = run_of(jobs, [Held(0, 0, 10, 3), Held(0, 0, 10, 2, node=2)], 10.0, overflow=2)
    return Book(result, trace_of(jobs), cluster_of(), "x")


def without_gpus() -> Book:
    """Return a run on 16 cores."""
    result, trace = run_of([Job(0, 0)], [], 10.0), trace_of([Job(0, 0)])
    return Book(result, trace, Cluster.parse("2x0:cpu/8c"), "x")


def _at(t_s: float) -> Callable[[], str]:
    return lambda: explore.moment(by_hand(), t_s).sentence


def _life(book: Callable[[], Book], job: int) -> Callable[[], str]:
    return lambda: explore.life(book(), job).sentence


def _waited(spec: str, job: str) -> Callable[[], str]:
    """Return why a job of `queue` waited under a policy, as its drawer says it."""

    def told() -> str:
        trace = queue()
        row = trace.frame["job_id"].tolist().index(job)
        allocator = make(Spec.parse(spec))
        witness = Witness({row})
        result = Simulator(
            trace, TWO, allocator, Conditions(), witness=witness.bind(allocator)
        ).run()
        book = Book(result, trace, TWO, spec, allocator.needs)
        return " ".join(
            one.full_sentence for one in reasons.stated_reasons(book, row, witness.said)
        )

    return told


def _fifo(**more: Any) -> Callable[[], Book]:
    return lambda: book_of(three(), TWO, "fifo", **more)


SITUATIONS: Final[Mapping[str, Callable[[], str]]] = {
    "no job waits": _at(5.0),
    "jobs wait, none fits the pieces": _at(60.0),
    "jobs wait, GPUs are down": _at(90.0),
    "jobs wait, no GPU is free": _at(110.0),
    "a job waits for a larger piece": _at(205.0),
    "jobs wait, the largest would fit": _at(170.0),
    "the recording holds more GPUs": lambda: explore.moment(beyond_the_cluster(), 5.0).sentence,
    "no GPUs": lambda: explore.moment(without_gpus(), 5.0).sentence,
    "job waited": _life(_fifo(), 1),
    "job behind it waited": _life(_fifo(), 2),
    "job did not wait": _life(_fifo(), 0),
    "job did not finish": _life(_fifo(horizon_s=3000.0), 1),
    "job on the calendar": _life(
        lambda: book_of(replace(three(), epoch="2017-10-03T23:30:00"), TWO, "fifo"), 1
    ),
    "job was hit and resized": _life(hit_and_resized, 0),
    **{
        f"{job} waits under {spec}": _waited(spec, job)
        for spec in ("fifo", "easy", "sjf", "srtf", "las", "gavel", "slurm", "kueue", "kai")
        for job in ("wide", "late")
    },
    "job was preempted often": _life(preempted_often, 0),
}


def sentences(situation: str) -> Sequence[str]:
    """Return the sentences of a situation."""
    return [SITUATIONS[situation]()]
