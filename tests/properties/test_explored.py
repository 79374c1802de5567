"""Every job of small runs of every allocator can be looked at, and what is said of it adds up."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from allocators import REGISTRY, make
from sim.contract import Spec
from sim.engine.simulator import Simulator
from sim.metrics import UsageArrays, queue_series
from sim.metrics.wait_causes import MAX_PIECES
from tests.conformance import scenarios
from tests.properties.runs import busy_trace, mixed_cluster, rough
from trainyard.what_if import explore
from trainyard.what_if.explore import Book


def check_machines(book: Book) -> None:
    line, end_s = book.line, book.line.end_s
    found = explore.occupancy(book, (0.0, end_s))
    held = UsageArrays(book.result, book.cluster).held_gpu_s(0.0, end_s)[: len(line.size)]
    assert (found.used.astype(np.float64) * np.diff(found.t_s)).sum(axis=1) == pytest.approx(
        held[line.size > 0], rel=1e-4, abs=1e-2 * end_s
    )
    assert (found.used >= 0).all()
    assert (found.used <= found.size[:, None] * (1 + 1e-6)).all()
    series = queue_series(book.result)
    for at_s in np.linspace(0.0, end_s, 12, endpoint=False):
        now = explore.moment(book, float(at_s))
        row = series.iloc[int(np.searchsorted(series["t_s"], at_s, "right")) - 1]
        assert (len(now.waiting), now.waiting["gpus"].sum()) == (row["waiting"], row["gpus_wanted"])
        assert now.held + now.free + now.down == pytest.approx(line.size.sum())
        assert (now.frame[["free", "used", "down"]] >= 0).all(axis=None)


def check_job(book: Book, job: int) -> None:
    life, reasons = explore.life(book, job), explore.wait_reasons(book, job)
    enter, leave = (float(times[job]) for times in book.line.presence)
    spells = list(life.spells.itertuples(index=False))
    assert all(one.t1 == other.t0 for one, other in pairwise(spells))
    if leave > enter:
        assert (spells[0].t0, spells[-1].t1) == (enter, leave)
    waiting = [spell for spell in spells if spell.state == "waiting"]
    assert all((spell.gpus == 0) and not spell.nodes for spell in waiting)
    waited_s = sum(spell.t1 - spell.t0 for spell in waiting)
    assert sum(one.waited_s for one in reasons) == pytest.approx(waited_s)
    assert book.line.waited_s[job] == pytest.approx(waited_s)
    assert len(reasons) <= MAX_PIECES
    assert all(
        one.sentence.endswith(".") and "nan" not in one.sentence and "inf" not in one.sentence
        for one in reasons
    )
    whole = [one for one in reasons if not one.facts.waits]
    if whole == list(reasons):
        gaps = [(one.t1, other.t0) for one, other in pairwise(reasons) if one.t1 != other.t0]
        assert gaps == [(one.t1, other.t0) for one, other in pairwise(waiting)]
    assert np.isclose(life.finish_s, book.result.jobs["finish_s"].iloc[job], equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY)
def test_every_job_of_a_rough_run(name: str) -> None:
    """Late plans, outages, interruptions, a node that comes late."""
    trace, cluster, allocator, conditions = (
        busy_trace(60, 1),
        mixed_cluster(),
        make(Spec(name)),
        rough(2),
    )
    result = Simulator(trace, cluster, allocator, conditions).run()
    book = Book(result, trace, cluster, name, allocator.needs, conditions.perf)
    check_machines(book)
    for job in range(len(book.trace)):
        check_job(book, job)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in REGISTRY
        if (needs := make(Spec(name)).needs).requires & {"scaling", "servers"} or needs.mixes_types
    ],
)
def test_every_job_of_workers_and_servers(name: str) -> None:
    """Jobs without GPUs, parameter servers, limits of cores and memory, elastic sizes, restarts
    that overlap.
    """
    scenario = next(one for one in scenarios() if one.name == "staffed")
    allocator = make(Spec(name))
    book = Book(
        scenario.run(allocator),
        scenario.trace,
        scenario.cluster,
        name,
        allocator.needs,
        scenario.conditions.perf,
    )
    check_machines(book)
    for job in range(len(book.trace)):
        check_job(book, job)
