"""Per-job ends of three published simulators, whose rules our policies express: `RULES` maps a case
to a policy.

The cases stand in shared/data/peer_cases: Tiresias' simulator (SymbioticLab/Tiresias), the one of
Alibaba's GPU trace of 2020 (alibaba/clusterdata), and Lucid's (S-Lab-System-Group/Lucid). Each is
named simulator/policy/placement/trace.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import pandas as pd
import pytest

from allocators import make
from sim.cluster import Cluster
from sim.contract import Grant, JobId, Spec
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.trace import Trace
from tests.shared import ROOT, shared

INDEX = "data/peer_cases/cases.json"


@dataclass(frozen=True)
class LucidOverheads(Overheads):
    """A stopped job has 40 s more to do, one on more than 8 GPUs 60 s: here a pause when it starts
    again.
    """

    def transition(
        self, job: JobId, old: Grant | None, new: Grant, *, restarted: bool
    ) -> tuple[float, float]:
        """Return no overlap, and the pause."""
        return 0.0, (60.0 if sum(new.gangs[0].workers.count) > 8 else 40.0) * restarted


@dataclass(frozen=True)
class Rule:
    """How a case is run here.

    Parameters
    ----------
    spec : str
        The policy.
    longer_s : float, seconds
        Lucid's preemptive policies test for the end before they count a second, so every job takes
        one more.
    overheads : Overheads
        What a stop costs.
    from_zero : bool
        Whether rounds are counted from second 0 of the trace; ours begin with the first submission.
        A job of one second there, before all others, makes them the same.
    """

    spec: str
    longer_s: float = 0.0
    overheads: Overheads = field(default_factory=Overheads)
    from_zero: bool = False


def lucid(spec: str, *, from_zero: bool = False) -> Rule:
    return Rule(spec, 1.0, LucidOverheads(), from_zero)


# "count" is a counter of GPUs, as placement=anywhere on one type. Lucid demotes above 18,000 GPU-s,
# and counts a second less for every stint; it looks at multiples of 60 s only, where that is 18,001
# GPU-s or more.
IN_ROUNDS = "rounds:every_s=60,inner=las(thresholds=18001,order=arrival,placement={})"
RULES = {
    "alibaba_pai/fifo": Rule("fifo:backfill=first_fit,placement=anywhere"),
    "alibaba_pai/sjf": Rule("sjf:backfill=first_fit,placement=anywhere"),
    "tiresias/fifo/count": Rule("fifo:placement=anywhere"),
    "tiresias/fifo/yarn": Rule("fifo:placement=first_fit"),
    "tiresias/fjf/count": Rule("fifo:backfill=first_fit,placement=anywhere"),
    "tiresias/sjf/count": Rule("srtf:size=gpus,placement=anywhere"),
    "tiresias/shortest/count": Rule("srtf:placement=anywhere"),
    "tiresias/shortest-gpu/count": Rule("srtf:size=gpu_time,placement=anywhere"),
    "tiresias/dlas/count": Rule("las:measure=s,placement=anywhere"),
    "tiresias/dlas-gpu/count": Rule("las:placement=anywhere"),
    "lucid/fifo/count": Rule("fifo:placement=anywhere"),
    "lucid/fifo/bestfit": Rule("fifo:placement=consolidate"),
    "lucid/sjf/count": Rule("sjf:placement=anywhere"),
    "lucid/sjf/bestfit": Rule("sjf:placement=consolidate"),
    "lucid/srtf/count": lucid("srtf:placement=anywhere"),
    "lucid/srtf/bestfit": lucid("srtf:placement=consolidate"),
    "lucid/tiresias/count": lucid(IN_ROUNDS.format("anywhere"), from_zero=True),
    "lucid/tiresias/bestfit": lucid(IN_ROUNDS.format("consolidate"), from_zero=True),
}

# Rules that ours are not, and why; each is noticed if it is met after all.
LATE = (
    "a job on several GPUs is looked at for demotion at now + floor((threshold - executed seconds)"
    " / GPUs), which is later than it crosses, and earlier than it does by a fraction"
)
IDLE = "GPUs that were meant for a job which then cannot be placed on whole nodes stay idle"
ADDED = (
    "what a stop costs is added to the remaining work, by which jobs are ordered, and is not paid"
    " again by a job that is stopped while it pays"
)
OTHERWISE = {
    "tiresias/dlas-gpu/count/A12": LATE,
    "tiresias/dlas-gpu/count/A50": LATE,
    "lucid/srtf/count/A50": ADDED,
    "lucid/srtf/bestfit/A50": f"{ADDED}; {IDLE}",
    "lucid/tiresias/bestfit/A50": IDLE,
}


_TWELVE = """
submit_time_s num_gpus duration_s
1599 1 668
2367 4 300
3482 1 6782
3963 1 2232
4859 2 1623
4908 1 1059
4922 2 11582
5153 4 1463
5698 4 2784
6883 4 3258
6942 2 1309
7735 1 9291
"""
TWELVE = pd.read_csv(StringIO(_TWELVE), sep=" ").rename_axis("job_id").reset_index()
"""The jobs of the smallest cases, on one node of 8 GPUs."""

_ENDS = """
alibaba_pai/fifo 2267 2667 10264 6195 6482 5967 16504 7945 10729 13987 15296 17026
alibaba_pai/sjf 2267 2667 10264 6195 6482 5967 16504 7945 12038 15296 9254 17026
tiresias/fifo/count 2267 2667 10264 6195 6482 5967 16504 7945 10729 13987 12038 21329
tiresias/fjf/count 2267 2667 10264 6195 6482 5967 16504 7945 10729 13987 15296 17026
tiresias/sjf/count 2267 2667 10264 6195 6482 5967 16504 9254 12038 15296 8251 17026
tiresias/shortest/count 2267 2667 11271 6195 6482 5967 19335 6616 9266 12465 8251 17026
tiresias/shortest-gpu/count 2267 2667 10264 6195 6482 5967 18328 7430 10214 13472 8251 17026
tiresias/dlas/count 2267 2667 11494 6195 6482 5967 16583 7945 10729 13987 8251 17463
tiresias/dlas-gpu/count 2267 2667 11171 6195 6482 5967 18295 9254 12968 13505 8948 17026
tiresias/fifo/yarn 2267 2667 10264 6195 6482 5967 16504 7945 10729 13987 12038 21329
lucid/fifo/count 2267 2667 10264 6195 6482 5967 16504 7945 10729 13987 12038 21329
lucid/fifo/bestfit 2267 2667 10264 6195 6482 5967 16504 7945 10729 13987 12038 21329
lucid/sjf/count 2267 2667 10264 6195 6482 5967 16504 7945 12038 15296 9254 21329
lucid/sjf/bestfit 2267 2667 10264 6195 6482 5967 16504 7945 12038 15296 9254 21329
lucid/srtf/count 2268 2668 11393 6196 6483 5968 19418 6617 9268 12508 8252 17027
lucid/srtf/bestfit 2268 2668 11393 6196 6483 5968 19418 6617 9268 12508 8252 17027
lucid/tiresias/count 2289 2701 10323 6253 6484 5980 16563 8004 10825 14119 11690 18392
lucid/tiresias/bestfit 2289 2701 10323 6253 6484 5980 16563 8004 10825 14119 11690 18392
"""
ENDS_OF_TWELVE = {
    name: [int(end_s) for end_s in ends_s]
    for name, *ends_s in (line.split() for line in _ENDS.split("\n") if line)
}
"""Policy there -> when each of them ends, in seconds; transcribed from the files named above."""


def listed() -> list[dict[str, Any]]:
    path = ROOT / INDEX
    return json.loads(path.read_text()) if path.exists() else []  # type: ignore[no-any-return]


CASES = {case["case"]: case for case in listed() if not case["case"].endswith("/A12")}


def family(name: str) -> str:
    return name.rpartition("/")[0]


def ends(jobs: pd.DataFrame, cluster: Cluster, rule: Rule) -> pd.Series[float]:
    frame = jobs.assign(duration_s=jobs["duration_s"] + rule.longer_s)
    if rule.from_zero and frame["submit_time_s"].min() > 0:
        frame = pd.concat(
            [pd.DataFrame([[-1, 0, 1, 1]], columns=frame.columns), frame], ignore_index=True
        )
    run = Simulator(
        Trace.of(frame), cluster, make(Spec.parse(rule.spec)), Conditions(overheads=rule.overheads)
    ).run()
    order = frame.sort_values("submit_time_s", kind="stable")
    return pd.Series(
        run.jobs["finish_s"].to_numpy() + order["submit_time_s"].iloc[0], order["job_id"].to_numpy()
    )


def known(name: str, request: pytest.FixtureRequest) -> None:
    """Expect a failure where a rule there is not ours."""
    if name in OTHERWISE:
        request.applymarker(
            pytest.mark.xfail(reason=OTHERWISE[name], raises=AssertionError, strict=True)
        )


@pytest.mark.parametrize("name", list(ENDS_OF_TWELVE))
def test_each_of_twelve_jobs_ends_when_it_ends_there(
    name: str, request: pytest.FixtureRequest
) -> None:
    known(f"{name}/A12", request)
    ours = ends(TWELVE, Cluster.parse("1x8:v100"), RULES[name])
    assert [ours[job] for job in TWELVE["job_id"]] == ENDS_OF_TWELVE[name]


@pytest.mark.parametrize("name", list(CASES) or list(RULES))
def test_every_job_ends_when_it_ends_there(name: str, request: pytest.FixtureRequest) -> None:
    folder = shared(INDEX).parent
    known(name, request)
    case = CASES[name]
    published = pd.read_csv(folder / case["ends"]).set_index("job_id")["end_s"]
    jobs = pd.read_csv(folder / case["trace"])
    cluster = Cluster.parse(f"{case['nodes']}x{case['gpus_per_node']}:v100")
    columns = ["job_id", "submit_time_s", "num_gpus", "duration_s"]
    ours = ends(jobs[columns], cluster, RULES[family(name)])
    assert {job: ours[job] - end_s for job, end_s in published.items() if ours[job] != end_s} == {}


def test_first_fit_and_best_fit_are_told_apart() -> None:
    # Two nodes of 4. Job 0 (2 GPUs) has node 0 until 9, job 1 (3) node 1 until 20, job 2 (1 GPU)
    # comes at 2: first fit puts it on node 0, best fit on node 1, the fuller one. So job 3 (2 GPUs,
    # at 3) has no room under first fit until job 0 ends.
    frame = pd.DataFrame(
        [(0, 0, 2, 9), (1, 1, 3, 19), (2, 2, 1, 30), (3, 3, 2, 5)],
        columns=["job_id", "submit_time_s", "num_gpus", "duration_s"],
    )
    first, best = (
        Simulator(
            Trace.of(frame), Cluster.parse("2x4:v100"), make(Spec.parse(f"fifo:placement={how}"))
        )
        .run()
        .jobs["first_start_s"]
        .tolist()
        for how in ("first_fit", "consolidate")
    )
    assert first == [0, 1, 2, 9]
    assert best == [0, 1, 2, 3]


def test_every_rule_is_one_of_the_cases() -> None:
    shared(INDEX)
    assert {family(name) for name in CASES} == set(RULES)
    assert {family(name) for name in OTHERWISE} <= set(RULES)
