"""The fast engine leaves the very record of the general simulator: random traces, clusters and
rules under both.

`check_engines` draws scenarios from a seed; exploration calls it with seeds of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from allocators import REGISTRY, make
from allocators.placement import PLACEMENTS, TYPES
from sim.cluster import Change, Cluster, GpuType, NodeGroup
from sim.conditions import Conditions
from sim.contract import Spec, parameters, rule_of
from sim.engine.fast import runner
from sim.engine.faults import Faults
from sim.engine.simulator import Simulator
from sim.overheads import Overheads
from sim.perf.estimators import Biased, Exact, Noisy, Unknown
from sim.perf.rigid import Rigid
from sim.result import RunResult
from sim.trace import Trace
from tests.properties.runs import busy_trace
from tests.strategies import VCS, trace_of

EXAMPLES = 60
KINDS = (
    GpuType("old", 0.5, 1.0),
    GpuType("new", 2.0, 3.0),
    GpuType("odd", 4 / 3, 0.5),
    GpuType("slow", 0.75, 0.5),
)
FRAMES = ("outages", "failures", "notes", "usage")
INSTANTS = (0.0, 1.0, 2.0, 5.0, 7.1, 10.0, 12.5, 20.0, 30.0, 45.0, 60.0, 90.0, inf)
LIMITS = ((10.0,), (1.0, 30.0), (20 / 3, 15.0, 60.0), (3250.0, 7200.0))
RULES = [name for name in REGISTRY if rule_of(make(Spec(name))) is not None]

times_s = st.one_of(
    st.integers(0, 40).map(float), st.sampled_from((1 / 3, 2 / 3, 7.1)), st.floats(0, 60)
)
sizes_s = st.one_of(
    st.integers(1, 30).map(float), st.sampled_from((1e-7, 0.1, 1 / 3)), st.floats(0.001, 90)
)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    row = st.fixed_dictionaries(
        {
            "submit_time_s": times_s,
            "num_gpus": st.one_of(st.integers(1, 4), st.integers(1, 14)),
            "duration_s": sizes_s,
            "gpu_type": st.sampled_from((None, "old", "new")),
            "gpu_types_allowed": st.sampled_from((None, None, None, "old", "new|odd", "gone")),
            "priority": st.sampled_from((float("nan"), 0.0, 1.0, 2.0)),
            "time_limit_s": st.sampled_from((float("nan"), 5.0, 60.0)),
            "cpus": st.sampled_from((float("nan"), 2.5)),
            "preemptible": st.sampled_from((float("nan"), 1.0)),
            "vc": st.sampled_from(VCS),
            "partition": st.sampled_from((*VCS, "gone")),
        }
    )
    return trace_of(draw(st.lists(row, min_size=1, max_size=draw(st.sampled_from((8, 25, 60))))))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True))
    homes = draw(st.sampled_from((((),), (VCS[:1], VCS[1:]))))
    group = st.builds(
        NodeGroup,
        st.sampled_from((1, 2, 3, 5, 40)),
        st.sampled_from((1, 2, 4, 8)),
        st.sampled_from([kind.name for kind in kinds]),
        partitions=st.sampled_from(homes),
    )
    return Cluster(tuple(draw(st.lists(group, min_size=1, max_size=4))), KINDS)


@st.composite
def all_specs(draw: st.DrawFn, names: Sequence[str]) -> Spec:
    name = draw(st.sampled_from(names))
    if name == "partition":
        inner = draw(all_specs([other for other in RULES if other != name]))
        return Spec.of(name, by=draw(st.sampled_from(("vc", "partition"))), inner=inner)
    values = {"placement": draw(st.sampled_from(PLACEMENTS)), "types": draw(st.sampled_from(TYPES))}
    for info in parameters(REGISTRY[name]):
        if info.choices and info.name not in values and draw(st.booleans()):
            values[info.name] = draw(st.sampled_from(info.choices))
    known = {info.name for info in parameters(REGISTRY[name])}
    if "depth" in known:
        values["depth"] = draw(st.sampled_from((0, 1, 3, 500)))
    if "thresholds" in known:
        values["thresholds"] = draw(st.sampled_from(LIMITS))
    return Spec.of(name, **values)


def specs(names: Sequence[str] = RULES) -> st.SearchStrategy[Spec]:
    """Return policies with parameters for which they state a rule."""
    return all_specs(names).filter(lambda spec: rule_of(make(spec)) is not None)


def conditions() -> st.SearchStrategy[Conditions]:
    """Return conditions under which a rule may be followed."""
    overheads = st.builds(
        Overheads,
        start_s=st.sampled_from((0.0, 0.0, 1.5)),
        restart_s=st.sampled_from((0.0, 0.5, 60.0)),
        checkpoint_every_s=st.sampled_from((3.0, 1800.0)),
        checkpoint_s=st.sampled_from((0.0, 0.5)),
    )
    return st.builds(
        Conditions,
        perf=st.sampled_from((Rigid(), Rigid("old"))),
        estimator=st.sampled_from((Exact(), Noisy(0.8), Biased(0.2), Biased(3.0), Unknown(5.0))),
        overheads=overheads,
        seed=st.integers(0, 3),
        horizon_s=st.sampled_from((inf, inf, 20.0, 33.3)),
    )


@st.composite
def failing(draw: st.DrawFn, cluster: Cluster) -> tuple[Cluster, Conditions]:
    """Return a cluster, maybe with dated changes, and conditions with failures of its nodes."""
    nodes, instants = st.integers(0, min(len(cluster.nodes), 8) - 1), st.sampled_from(INSTANTS)
    outage = st.tuples(nodes, instants, instants).filter(lambda one: one[1] < one[2])
    outages = draw(st.lists(outage, max_size=6))
    change = st.builds(
        Change,
        st.sampled_from(INSTANTS[:-1]),
        st.lists(nodes, min_size=1, max_size=3, unique=True).map(tuple),
        st.booleans(),
    )
    changes = draw(st.one_of(st.just([]), st.lists(change, max_size=5)))
    faults = Faults(
        mtbf_h=draw(st.sampled_from((0.0, 0.0, 0.03, 0.2))),
        mttr_h=draw(st.sampled_from((0.0, 0.001, 0.01))),
        retries=draw(st.sampled_from((-1, -1, 0, 2, 5))),
        outages=";".join(f"{node}:{begin}:{end}" for node, begin, end in outages),
    )
    return replace(cluster, changes=tuple(changes)), replace(draw(conditions()), faults=faults)


def both(
    trace: Trace, cluster: Cluster, spec: Spec, given_: Conditions
) -> tuple[RunResult | None, RunResult]:
    """Return the record of both engines; None = the fast one does not make the run."""
    try:
        fast = runner.run(runner.prepare_run(trace, cluster, make(spec), given_))
    except runner.NotCompiledError:
        raise
    except runner.NotPlainError:
        fast = None
    return fast, Simulator(trace, cluster, make(spec), given_).run()


def check(fast: RunResult | None, kernel: RunResult) -> None:
    if fast is None:
        return
    for name in ("decisions", "segments", "placements", "jobs", *FRAMES):
        ours, theirs = getattr(fast, name), getattr(kernel, name)
        assert ours.equals(theirs), name
    assert fast.digest() == kernel.digest()
    assert fast.remarks == kernel.remarks
    assert (fast.reason, fast.end_s) == (kernel.reason, kernel.end_s)
    assert fast.jobs["believed_s"].equals(kernel.jobs["believed_s"])


@pytest.mark.usefixtures("fast_engine")
@pytest.mark.parametrize("name", RULES)
@settings(max_examples=EXAMPLES // 4)
@given(data=st.data())
def test_both_engines_leave_the_same_record(name: str, data: st.DataObject) -> None:
    spec = data.draw(specs([name]))
    check(*both(data.draw(traces()), data.draw(clusters()), spec, data.draw(conditions())))


@pytest.mark.usefixtures("fast_engine")
@pytest.mark.parametrize("types", [("new",), ("old", "new"), ("old", "new", "odd")])
@pytest.mark.parametrize("restart_s", [0.0, 60.0])
@pytest.mark.parametrize(
    "policy",
    [
        "srtf",
        "srtf:size=gpu_time",
        "srtf:backfill=none",
        "srtf:types=cheapest",
        "las",
        "las:order=arrival",
    ],
)
def test_preemption_on_several_types_leaves_the_same_record(
    policy: str, restart_s: float, types: tuple[str, ...]
) -> None:
    spec = Spec.parse(policy)
    if policy.startswith("las"):
        spec = Spec.of("las", **dict(spec.params) | {"thresholds": (100.0, 1000.0)})
    trace = Trace.of(busy_trace(300, 2).frame.drop(columns="cpus"))
    cluster = Cluster(tuple(NodeGroup(3, 4, kind) for kind in types), KINDS)
    given_ = Conditions(
        overheads=Overheads(start_s=5.0, restart_s=restart_s), estimator=Noisy(0.8), seed=1
    )
    fast, kernel = both(trace, cluster, spec, given_)
    assert fast is not None
    check(fast, kernel)
    endings = set(kernel.segments["ended"])
    assert "preempted" in endings
    assert ("changed" in endings) == (len(types) > 1)


@pytest.mark.usefixtures("fast_engine")
def test_half_a_microsecond_is_rounded_alike() -> None:
    """On 256 GPUs the second job crosses 3,250 GPU-seconds after 12.6953125 s, half a microsecond.
    It begins at 1.1 s, so the third takes its GPUs at 13.795312 s.
    """
    rows = ((0.0, 1, 1.0), (1.1, 256, 100.0), (3.7, 256, 5.0))
    trace = trace_of(
        [
            {"submit_time_s": submit_s, "num_gpus": gpus, "duration_s": run_s}
            for submit_s, gpus, run_s in rows
        ]
    )
    cluster = Cluster((NodeGroup(32, 8, "new"),), KINDS)
    fast, kernel = both(trace, cluster, Spec("las"), Conditions())
    assert fast is not None
    check(fast, kernel)


@pytest.mark.usefixtures("fast_engine")
@pytest.mark.parametrize("inner", ["fifo", "easy", "srtf", "las"])
@pytest.mark.parametrize("by", ["vc", ""])
def test_virtual_clusters_leave_the_same_record(inner: str, by: str) -> None:
    spec = Spec.of("partition", by=by, inner=Spec(inner)) if by else Spec(inner)
    trace = Trace.of(busy_trace(300, 2).frame.drop(columns="cpus"))
    homes = (("blue",), ("red",), ("blue",))
    cluster = Cluster(
        tuple(NodeGroup(2, 4, kind, partitions=home) for home in homes for kind in ("old", "new")),
        KINDS,
    )
    fast, kernel = both(trace, cluster, spec, Conditions(overheads=Overheads(restart_s=60.0)))
    assert fast is not None
    check(fast, kernel)


@pytest.mark.usefixtures("fast_engine")
@pytest.mark.parametrize("policy", ["fifo", "easy", "srtf", "las"])
@pytest.mark.parametrize(("horizon_s", "stop"), [(1500.0, "drained"), (5e5, "horizon")])
def test_a_run_to_the_horizon_leaves_the_same_record(
    policy: str, horizon_s: float, stop: str
) -> None:
    trace = Trace.of(busy_trace(300, 2).frame.drop(columns="cpus"))
    cluster = Cluster((NodeGroup(3, 8, "new"),), KINDS)
    given_ = Conditions(overheads=Overheads(restart_s=60.0), horizon_s=horizon_s, stop=stop)
    fast, kernel = both(trace, cluster, Spec(policy), given_)
    assert fast is not None
    check(fast, kernel)
    assert kernel.reason == "horizon"
    assert ("open" in set(kernel.segments["ended"])) == (stop == "drained")


def check_engines(random_seed: int) -> Counter[str]:
    """Compare both engines on scenarios drawn from a seed; count those that each engine took."""
    taken: Counter[str] = Counter()

    @seed(random_seed)
    @settings(
        max_examples=EXAMPLES,
        derandomize=False,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(traces(), specs(), st.data())
    def compare(trace: Trace, spec: Spec, data: st.DataObject) -> None:
        cluster = data.draw(clusters())
        if data.draw(st.booleans()):
            cluster, given_ = data.draw(failing(cluster))
        else:
            given_ = data.draw(conditions())
        fast, kernel = both(trace, cluster, spec, given_)
        check(fast, kernel)
        taken["kernel" if fast is None else fast.timing.engine] += 1

    compare()
    return taken


@pytest.mark.usefixtures("fast_engine")
def test_the_fast_engine_makes_most_of_the_runs_drawn_from_a_seed() -> None:
    taken = check_engines(random_seed=0)
    assert taken["fast"] > taken["kernel"], taken
