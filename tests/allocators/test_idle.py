"""A policy that has done nothing of its own in a run says so, once it has run, and only then."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from allocators import REGISTRY, make
from sim.cluster import Cluster
from sim.contract import Spec, remarks_of
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.perf.parameter_server import ParameterServer
from sim.perf.scaling import PowerLaw
from sim.result import RunResult
from sim.trace import Trace


def run(policy: str, cluster: str, perf: Any = None, **columns: Any) -> RunResult:
    frame = pd.DataFrame(
        {
            "job_id": list("abc"),
            "submit_time_s": [0.0, 10.0, 20.0],
            "num_gpus": [2, 4, 8],
            "duration_s": [3000.0, 500.0, 900.0],
        }
    )
    trace = Trace.of(frame.assign(**columns))
    return Simulator(
        trace, Cluster.parse(cluster), make(Spec.parse(policy)), Conditions(perf or PowerLaw())
    ).run()


RIGID: dict[str, Any] = {"min_gpus": [2, 4, 8], "max_gpus": [2, 4, 8]}
ELASTIC: dict[str, Any] = {"min_gpus": [1, 1, 1], "max_gpus": [8, 8, 8]}
ONE, TWO = "1x8:v100", "1x8:v100,1x8:t4"


@pytest.mark.parametrize("name", REGISTRY)
def test_who_has_not_run_says_nothing_of_what_it_did(name: str) -> None:
    assert not [
        sentence
        for sentence in remarks_of(make(Spec(name)))
        if "nothing" in sentence or "never" in sentence
    ]


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (
            "mip_elastic",
            (
                "mip_elastic resized nothing, since none of the 3 jobs has a choice of sizes: it"
                " only chose which of them run."
            ),
        ),
        (
            "greedy_elastic",
            (
                "greedy_elastic resized nothing, since none of the 3 jobs has a choice of sizes: "
                "it started them in order of submission, as fifo does, but at its own instants."
            ),
        ),
        (
            "dp_elastic",
            (
                "dp_elastic resized nothing, since none of the 3 jobs has a choice of sizes: it"
                " only admitted them in order of submission, at its own instants."
            ),
        ),
    ],
)
def test_nobody_to_resize(policy: str, said: str) -> None:
    assert said in run(policy, ONE, **RIGID).remarks
    assert not any(
        "resized nothing" in sentence for sentence in run(policy, ONE, **ELASTIC).remarks
    )


def test_no_batch_to_choose() -> None:
    assert run("dp_elastic", ONE, **ELASTIC).remarks == (
        "No job here has a choice of batch sizes, so batch=elastic changes nothing.",
    )


@pytest.mark.parametrize(
    ("policy", "idle", "busy", "said"),
    [
        (
            "hadar",
            ONE,
            TWO,
            (
                "hadar chose no GPU types: all GPUs are v100. It only chose the jobs of each round"
                " and their nodes."
            ),
        ),
        (
            "switch",
            ONE,
            None,
            (
                "switch never changed: nothing was left to decide at 86,400 s; the schedule is that"
                " of fifo."
            ),
        ),
        ("switch:at_s=15", None, ONE, ""),
    ],
)
def test_nothing_to_choose_between(
    policy: str, idle: str | None, busy: str | None, said: str
) -> None:
    if idle:
        assert run(policy, idle).remarks == (said,)
    if busy:
        assert run(policy, busy).remarks == ()


def test_one_part() -> None:
    assert run("partition", ONE).remarks == (
        "partition divided nothing: no job names a vc; the schedule is that of fifo.",
    )
    assert run("partition", ONE, vc="x").remarks == (
        "partition divided nothing: all jobs are of one vc, x; the schedule is that of fifo.",
    )
    assert run("partition", ONE, vc=["x", "y", "x"]).remarks == ()


def test_no_second_copy() -> None:
    assert run("hadare", ONE).remarks[0].startswith("HadarE forked nothing: in ")
    assert run("hadare:fill=yes", "2x8:v100").remarks == ()


def test_jobs_without_servers_are_left_to_the_allocator_inside() -> None:
    said = (
        "DLRover changed nothing: it sizes jobs of CPU workers and parameter servers, and no job"
        " here is one; the schedule is that of fifo."
    )
    result, plain = (run(policy, ONE + "/64c", ParameterServer()) for policy in ("dlrover", "fifo"))
    assert result.remarks[0] == said
    assert result.jobs["finish_s"].tolist() == plain.jobs["finish_s"].tolist()


def test_sizes_that_stay() -> None:
    remarks = run("aiturbo", ONE + "/64c", ParameterServer(), **RIGID).remarks
    assert (
        "aiturbo resized nothing: no other size needed less of any of the 3 predictable jobs; it"
        " only ranked them." in remarks
    )
    unpredictable = run(
        "aiturbo", ONE + "/64c", ParameterServer(), **RIGID, predictable_after=1.0
    ).remarks
    assert any("been predictable" in sentence for sentence in unpredictable)


DEMOTED_NOBODY = (
    "las moved no job to a lower queue: no job reached the first threshold; it ran in order of"
    " submission."
)


def test_no_job_to_demote() -> None:
    # The first job attains 2 x 3000, the second 4 x 500, the third 8 x 900 = 7200 GPU-seconds.
    kept = "las:thresholds=7201/8000"
    assert run(kept, ONE).remarks == (DEMOTED_NOBODY,)
    assert run("las:thresholds=5999/8000", ONE).remarks == ()
    assert run("las:thresholds=3001/8000,measure=s", ONE).remarks == (DEMOTED_NOBODY,)
    one = Trace.of(
        pd.DataFrame(
            {"job_id": ["a"], "submit_time_s": [0.0], "num_gpus": [1], "duration_s": [9.0]}
        )
    )
    result = Simulator(one, Cluster.parse(ONE), make(Spec("las"))).run()
    assert result.remarks == (DEMOTED_NOBODY,)
    # At 20 s it takes over from fifo, which has started two jobs: it does not speak for those.
    assert run(f"switch:at_s=15,then={kept}", ONE).remarks == ()


def test_who_was_evicted_did_not_run_in_order_of_submission() -> None:
    trace = Trace.of(
        pd.DataFrame(
            {"job_id": ["a"], "submit_time_s": [0.0], "num_gpus": [1], "duration_s": [9.0]}
        )
    )
    failing = Conditions(PowerLaw(), faults=Faults(outages="0:5:6"))
    assert Simulator(trace, Cluster.parse(ONE), make(Spec("las")), failing).run().remarks == ()


def test_nobody_to_stop() -> None:
    said = ("SRTF stopped no jobs: it only chose their start order.",)
    # One node: at 510 s the third job needs 900 s, the first 2490 s, which is stopped for it.
    assert run("srtf", ONE).remarks == ()
    assert run("srtf", "2x8:v100").remarks == said
    # At 100 s the first job leaves a v100 to the third, which nobody stops, but which moves there.
    moved: dict[str, Any] = {"num_gpus": [2, 2, 2], "duration_s": [100.0, 3000.0, 3000.0]}
    assert run("srtf", "1x4:v100,1x2:t4", **moved).remarks == ()
    assert run("srtf:migrate=never", "1x4:v100,1x2:t4", **moved).remarks == said


def test_no_types_to_choose_under_gavel() -> None:
    said = "gavel chose no GPU types: all GPUs are v100"
    aware, agnostic = (run(f"gavel:aware={aware}", ONE) for aware in ("yes", "no"))
    assert aware.remarks == (f"{said}; the shares are those of its agnostic form.",)
    assert agnostic.remarks == (f"{said}.",)
    assert aware.jobs["finish_s"].tolist() == agnostic.jobs["finish_s"].tolist()
    assert run("gavel", TWO).remarks == ()


def test_nobody_to_backfill() -> None:
    # The third job, for all 8 GPUs, waits for the others, and nobody comes behind it.
    result, plain = (run(policy, ONE) for policy in ("easy", "fifo"))
    assert result.remarks == ("EASY backfilled nothing: the schedule is that of FIFO.",)
    assert result.jobs["finish_s"].tolist() == plain.jobs["finish_s"].tolist()
    # The second waits for the first until 3000 s; before that the third is done beside the first.
    passing = run("easy", ONE, num_gpus=[6, 8, 2])
    assert passing.jobs["first_start_s"].tolist() == [0.0, 3000.0, 20.0]
    assert passing.remarks == ()
