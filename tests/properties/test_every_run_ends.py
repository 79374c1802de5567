"""Every run ends: events at, and just before, everything that a run waits for, under every
policy and all its parameters.

`check_scenario` makes a scenario from a seed; exploration calls it with seeds of its own. A seed
that fails belongs to FAILED_ONCE.
"""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf, isfinite
from typing import Any

import pandas as pd
import pytest

from allocators import REGISTRY, make
from sim.clock import LATEST_S, STEP_S, instant
from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.contract import Allocator, ParamInfo, Plan, Spec, View, parameters
from sim.engine.faults import Faults
from sim.engine.simulator import Simulator
from sim.errors import TrainyardError
from sim.overheads import Overheads
from sim.perf.batch import Batch
from sim.perf.parameter_server import ParameterServer
from sim.perf.profiled import Profiled
from sim.perf.rigid import Rigid
from sim.perf.scaling import PowerLaw
from sim.result import RunResult
from sim.trace import Trace
from tests.properties.invariants import check

MAX_DECISIONS = 100_000
"""A run that asks its policy more often counts as endless; most ask some hundred times."""
ROUNDS = 300
"""Ticks and rounds of a run at most: spans are cut to it, as 1e9 s in rounds of 10 s is only long.
"""
MAX_ROUNDS = 2000
"""Up to the horizon: where jobs never get further, a policy is asked in every round until then."""
MOST = {"periods": 3}
"""Integer programs over many slots take minutes to be proved; they end."""
SOLVERS = ("mip_elastic", "dp_elastic")
"""Some hundredths of a second per decision."""
ONE_PER_POLICY = range(len(REGISTRY))
FAILED_ONCE = (2048648487, 1815253929, 1082993957, 1168327806)


# -- what is drawn ------------------------------------------------------------------------------


def value(draw: random.Random, info: ParamInfo, depth: int) -> Any:
    if info.kind == "choice":
        return draw.choice(info.choices)
    if info.kind == "bool":
        return draw.random() < 0.5
    if info.kind == "spec":
        simple = [
            name
            for name in REGISTRY
            if depth == 0 or name not in {"partition", "switch", "dlrover"}
        ]
        return spec(draw, draw.choice(simple), depth + 1)
    if info.kind in {"text", "file"}:
        return info.default
    if info.kind == "numbers":
        low = max(info.low or 0.0, 1.0)
        return tuple(
            sorted(
                {low * draw.choice((1, 2, 7, 60, 3250)) + at for at in range(draw.randint(1, 3))}
            )
        )
    low = info.low if info.low is not None else 0.0
    high = info.high if info.high is not None else 1e9
    picks = [
        low,
        min(high, max(low, 1e9)),
        info.default,
        *(min(max(info.default * f, low), high) for f in (0.1, 0.5, 3, 30)),
    ]
    found = min(draw.choice([pick for pick in picks if isfinite(pick)]), MOST.get(info.name, inf))
    return int(found) if info.kind == "int" else float(found)


def spec(draw: random.Random, name: str, depth: int = 0) -> Spec:
    chosen = {
        info.name: value(draw, info, depth)
        for info in parameters(REGISTRY[name])
        if draw.random() < 0.4
    }
    return Spec.of(name, **chosen)


def built(draw: random.Random, name: str) -> tuple[Spec, Allocator]:
    for _ in range(50):
        found = spec(draw, name)
        try:
            return found, make(found)
        except TrainyardError:  # parameters that contradict each other
            continue
    return Spec(name), make(Spec(name))


def table(draw: random.Random, span_s: float) -> pd.DataFrame:
    grid = draw.choice((1e-3, 1e-3, 1e-6, 1.0)) if span_s > 100 else 1e-6
    count = draw.randint(2, 14)
    burst = draw.choice((0.05, 0.3, 1.0))
    rows = []
    for at in range(count):
        submit_s = round(draw.uniform(0, span_s * burst) / grid) * grid if at else 0.0
        duration_s = max(round(draw.lognormvariate(0, 1.5) * span_s / 8 / grid) * grid, grid)
        gpus = draw.choice((1, 1, 2, 3, 4, 8))
        rows.append(
            {
                "job_id": f"j{at}",
                "submit_time_s": submit_s,
                "num_gpus": gpus,
                "duration_s": min(duration_s, LATEST_S / 20),
                "start_time_s": submit_s + round(draw.uniform(0, span_s) / grid) * grid,
                "time_limit_s": draw.choice((float("nan"), duration_s, 2 * duration_s)),
                "priority": float(draw.randint(0, 2)),
                "vc": draw.choice(("a", "b")),
                "partition": draw.choice(("a", "b")),
                "user": draw.choice(("ann", "bob")),
                "preemptible": draw.choice((1.0, 1.0, 1.0, 0.0)),
                "min_gpus": max(1, gpus // 2),
                "max_gpus": gpus * 2,
            }
        )
    return pd.DataFrame(rows)


def staffed(draw: random.Random, frame: pd.DataFrame) -> pd.DataFrame:
    count = len(frame)
    workers = [float(draw.randint(1, 4)) for _ in range(count)]
    return frame.drop(columns=["min_gpus", "max_gpus", "start_time_s"]).assign(
        num_gpus=0,
        model=[draw.choice(("wide_deep", "deepfm", "xdeepfm")) for _ in range(count)],
        batch_size=[512 * at for at in workers],
        asynchronous=[float(draw.random() < 0.7) for _ in range(count)],
        workers=workers,
        servers=[float(draw.randint(1, 2)) for _ in range(count)],
        worker_cpus=2.0,
        server_cpus=2.0,
        worker_mem_gb=6.0,
        worker_mem_need_gb=4.0,
        server_mem_gb=[draw.choice((6.0, 30.0)) for _ in range(count)],
        server_mem_need_gb=5.0,
        server_mem_growth_gb=[draw.choice((0.0, 2.0, 8.0)) for _ in range(count)],
    )


def overheads(draw: random.Random, span_s: float) -> Overheads:
    def some(most: float) -> float:
        return min(draw.choice((0.0, 0.0, span_s / 100, span_s / 7, 1e-3)), most)

    return Overheads(
        start_s=some(86_400),
        restart_s=some(86_400),
        checkpoint_every_s=draw.choice((0.0, min(span_s / 10, 1e7), 1800.0)),
        checkpoint_s=some(span_s / 100),
        on_preempt=draw.choice(("checkpoint", "checkpoint", "lose_all", "forbidden")),
        latency_s=draw.choice((0.0, 0.0, 1e-7, min(span_s / 50, 86_400))),
        overlap_s=some(86_400),
        relaunch_s=some(86_400),
    )


def cut(text: str, span_s: float, at: float) -> str:
    return f"{text}:{instant(span_s * at)!r}:{instant(span_s * (at + 0.07)) + STEP_S!r}"


def conditions(
    draw: random.Random, name: str, allocator: Allocator, span_s: float
) -> tuple[Conditions, str]:
    perf: Any = Rigid()
    needs = allocator.needs.requires
    if "servers" in needs or (
        draw.random() < 0.15 and "scaling" not in needs and "profile" not in needs
    ):
        slow = draw.choice(
            ("", ";".join(f"{cut(str(node), span_s, 0.11 * (node + 1))}:0.5" for node in (0, 2)))
        )
        perf = ParameterServer(slow=slow)
    elif "profile" in needs:
        perf = Profiled(stand_in="relative", efficiency=0.7)
    elif "scaling" in needs:
        perf = (
            draw.choice((PowerLaw(), Batch()))
            if name in {"dp_elastic", "mip_elastic"}
            else PowerLaw()
        )
    outages = ";".join(
        cut(str(draw.randint(0, 2)), span_s, draw.random()) for _ in range(draw.randint(0, 2))
    )
    faults = Faults(
        mtbf_h=draw.choice((0.0, 0.0, span_s / 3600)),
        mttr_h=min(span_s / 3600 / 20, 1e6),
        interruptions_per_node_h=draw.choice((0.0, 0.0, min(3600 / span_s, 1e3))),
        # A job without enough memory is tried 10,000 times if nobody limits that.
        retries=draw.choice((-1, 3)) if isinstance(perf, Rigid) else 3,
        outages=outages,
    )
    return (
        Conditions(perf, overheads=overheads(draw, span_s), faults=faults, seed=draw.randint(0, 9)),
        type(perf).__name__,
    )


class Watched:
    """A policy that ends with its run, and whose wake-ups are noted for the second run."""

    def __init__(self, inner: Allocator) -> None:
        self.inner, self.cadence, self.needs, self.card = (
            inner,
            inner.cadence,
            inner.needs,
            inner.card,
        )
        self.woken: list[float] = []
        self.decisions = 0

    def allocate(self, view: View) -> Plan:
        self.decisions += 1
        assert self.decisions <= MAX_DECISIONS, f"no end by {view.now_s} s"
        plan = self.inner.allocate(view)
        if view.now_s < plan.wake_at_s < inf:
            self.woken.append(plan.wake_at_s)
        return plan


def deadlines(result: RunResult, woken: list[float], allocator: Allocator) -> list[float]:
    """What the first run waited for: ends, breaks and stops, crossings and rounds (wake-ups),
    repairs, ticks.
    """
    found = {
        *result.segments["t0"],
        *result.segments["t1"],
        *woken[:500],
        *result.outages["t1"].dropna(),
    }
    paused = result.segments[result.segments["paused_s"] > 0]
    found |= set(paused["t0"] + paused["paused_s"])
    every_s = allocator.cadence.every_s
    if every_s < inf:
        found |= {every_s * tick for tick in range(1, 40)}
    return sorted(at for at in found if 0.01 * STEP_S < at < LATEST_S / 4)


def with_events(draw: random.Random, frame: pd.DataFrame, found: list[float]) -> pd.DataFrame:
    """Submit jobs 1 ms, 1 us and 0 before deadlines."""
    rows = []
    for number, at_s in enumerate(draw.sample(found, min(len(found), 6))):
        model = frame.iloc[draw.randrange(len(frame))].to_dict()
        submit_s = max(0.0, at_s - draw.choice((1e-3, 1e-6, 0.0)))
        late = {"start_time_s": submit_s + 1e-3} if "start_time_s" in model else {}
        rows.append(model | late | {"job_id": f"e{number}", "submit_time_s": submit_s})
    return pd.concat([frame, pd.DataFrame(rows)], ignore_index=True) if rows else frame


def shortest_s(allocator: Allocator, chosen: Spec) -> float:
    """The shortest period named anywhere in a spec, or the cadence's."""
    periods = [allocator.cadence.every_s]
    for name, setting in chosen.params:
        if isinstance(setting, Spec):
            periods.append(shortest_s(make(setting), setting))
        elif name in {"round_s", "look_s", "plan_s", "interval_s", "every_s", "recompute_s"}:
            periods.append(max(float(setting), STEP_S))
    text = str(chosen)
    if any(word in text for word in SOLVERS):
        periods = [period / 10 for period in periods]
    if any(word in text for word in ("hadar", "gavel")):
        periods.append(360.0)
    if "slurm" in text:  # priorities are renewed every 300 s, plans follow
        periods.append(150.0)
    if "dlrover" in text or "kai" in text:  # usage is counted every 60 s
        periods.append(60.0)
    return min(periods)


def check_scenario(seed: int) -> None:
    """Run a scenario drawn from a seed, put events before what it waited for, and run it again."""
    draw = random.Random(seed)
    name = list(REGISTRY)[seed % len(REGISTRY)]
    chosen, allocator = built(draw, name)
    try:
        check_runs(draw, name, chosen, allocator)
    except Exception as error:
        error.add_note(f"check_scenario({seed}): {chosen}")
        raise


def check_runs(draw: random.Random, name: str, chosen: Spec, allocator: Allocator) -> None:
    span_s = 10 ** draw.uniform(-3, 9)
    span_s = min(span_s, ROUNDS * shortest_s(allocator, chosen))
    under, perf = conditions(draw, name, allocator, span_s)
    frame = table(draw, span_s)
    # Slower and faster than speed 1, for which restarts count differently.
    cluster = Cluster.parse(draw.choice(("2x8:v100,1x4:p100", "1x8:a100,2x4:h100")))
    if perf == "ParameterServer":
        frame, cluster = staffed(draw, frame), Cluster.parse("2x0:cpu/16c/64g,1x4:v100/16c/64g")
    elif perf == "Profiled":
        frame["model"] = [draw.choice(("ResNet-18", "LM")) for _ in range(len(frame))]
    horizon_s = draw.choice((span_s * 40, span_s * 400))
    if any(name in str(chosen) for name in SOLVERS):  # nodes break once in a span
        horizon_s = 10 * span_s
    horizon_s = min(horizon_s, MAX_ROUNDS * shortest_s(allocator, chosen), LATEST_S)
    under = replace(under, horizon_s=horizon_s)
    watched = Watched(allocator)
    trace = Trace.of(frame)
    first = Simulator(trace, cluster, watched, under).run()
    check(first, trace, cluster, under)
    trace = Trace.of(with_events(draw, frame, deadlines(first, watched.woken, allocator)))
    check(Simulator(trace, cluster, Watched(make(chosen)), under).run(), trace, cluster, under)


@pytest.mark.parametrize("seed", [*ONE_PER_POLICY, *FAILED_ONCE])
def test_a_run_ends_whatever_happens_just_before_its_deadlines(seed: int) -> None:
    check_scenario(seed)


def test_a_run_without_end_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.MAX_DECISIONS", 5)
    with pytest.raises(AssertionError, match=r"no end by .* s"):
        check_scenario(0)
