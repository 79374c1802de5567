"""Single jobs of DLRover's experiments against the minutes that were measured there, and a
population against what its production cluster reported.

Users' requests are kept where the experiments had them fixed. The job master looks at its job every
30 s, as the published code does.
"""

from __future__ import annotations

import numpy as np
import pytest

from allocators import make
from jobtraces.generate import workload
from sim.contract import Spec
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf.parameter_server import ParameterServer
from sim.result import RunResult

# Save, start and load take 3 + 5 + 3 min; seamlessly the start overlaps with training, and save and
# load take 1 + 2 min.
COSTS = Overheads(restart_s=660, overlap_s=300, overlap_pause_s=180)
STATIC = "fifo(placement=spread)"
FIXED = f"dlrover(inner={STATIC},placement=spread,resize=false,look_s=30)"
SLOW_WORKER, SLOW_SERVER, HOT_SERVER = "0:0:inf:0.587", "24:0:inf:0.1004", "24:180:inf:0.157"


def result(case: str, allocator: str, slow: str = "") -> RunResult:
    made = workload(f"dlrover-check:case={case}")
    return Simulator(
        made.make(),
        made.machines(),
        make(Spec.parse(allocator)),
        Conditions(ParameterServer(slow=slow), overheads=COSTS),
    ).run()


def minutes(case: str, allocator: str, slow: str = "") -> float:
    return float(result(case, allocator, slow).jobs.loc[0, "finish_s"]) / 60


def test_hot_server() -> None:
    # Measured: 33 min untouched, 29 min stopped and moved, 21 min moved seamlessly; at half speed
    # while the new server starts it must be 23.5. Half a minute of that passes until the second
    # look.
    assert minutes("hot", STATIC, HOT_SERVER) == pytest.approx(33, abs=0.1)
    assert minutes(
        "hot", FIXED.replace("look_s", "migration=stop_and_go,look_s"), HOT_SERVER
    ) == pytest.approx(29, abs=0.5)
    assert 21 <= minutes("hot", FIXED, HOT_SERVER) <= 24


def test_slow_worker() -> None:
    # Measured: 27 min healthy and static, 46 static, 31 with shards, of which 2 to 4 min are
    # overhead that is known only as that sum and not modelled.
    assert minutes("wide_deep", STATIC) == pytest.approx(27)
    assert minutes("wide_deep", STATIC, SLOW_WORKER) == pytest.approx(46, abs=0.1)
    sharded = minutes("wide_deep", FIXED.replace("look_s", "slow=0,look_s"), SLOW_WORKER)
    assert sharded == pytest.approx(27 * 24 / 23.587)
    assert 31 - 4 <= sharded <= 31 - 2
    # Replaced after 2 min the straggler costs next to nothing.
    assert minutes("wide_deep", FIXED, SLOW_WORKER) == pytest.approx(27, abs=0.1)


def test_slow_server() -> None:
    # Measured: 72 min static, 33 with the server replaced.
    assert minutes("wide_deep", STATIC, SLOW_SERVER) == pytest.approx(72, abs=0.2)
    assert minutes("wide_deep", FIXED, SLOW_SERVER) == pytest.approx(33, abs=3)


def test_within_fifteen_cores() -> None:
    # DeepFM: one worker makes 30 steps of 512 samples a second, and within 15 cores four make 100.
    run = result("deepfm", "dlrover:brain=false,limit_cores=15,limit_gb=29.3")
    assert (run.segments["rate"] / 512).round(1).tolist() == [30, 100]
    held = run.placements.groupby(["segment", "role"])["count"].sum()
    assert held.tolist() == [1, 1, 4, 1]
    assert (run.placements["count"] * run.placements["cpus"]).groupby(
        run.placements["segment"]
    ).sum().tolist() == [6, 15]


# -- a population
# --------------------------------------------------------------------------------------------------


def arm(allocator: str, seed: int, **costs: float) -> tuple[float, float, float, float]:
    """Return the median completion time of completed jobs in hours, and completion, cores and
    memory used over held as shares.
    """
    made = workload(f"dlrover:seed={seed}")
    overheads = Overheads(restart_s=1380, checkpoint_every_s=0, **costs)
    faults = Faults(retries=3, interruptions_per_node_h=0.008)
    run = Simulator(
        made.make(),
        made.machines(),
        make(Spec.parse(allocator)),
        Conditions(ParameterServer(), overheads=overheads, faults=faults),
    ).run()
    done = (run.jobs["outcome"] == "completed").to_numpy()
    span_s = (run.segments["t1"] - run.segments["t0"]).to_numpy()
    shares = []
    for what in ("cpus", "mem_gb"):
        held = (run.placements["count"] * run.placements[what]).to_numpy() * span_s[
            run.placements["segment"]
        ]
        used = run.usage[what].to_numpy() * span_s[run.usage["segment"]]
        shares.append(float(used.sum() / held.sum()))
    jct_s = (run.jobs["finish_s"] - run.jobs["submit_s"]).to_numpy()[done]
    return float(np.median(jct_s)) / 3600, float(done.mean()), shares[0], shares[1]


@pytest.mark.slow
def test_population() -> None:
    sized = f"dlrover(inner={STATIC},placement=spread)"
    ours = np.mean(
        [arm(sized, seed, overlap_s=300, overlap_pause_s=180, relaunch_s=120) for seed in range(3)],
        axis=0,
    )
    manual = np.mean([arm(STATIC, seed) for seed in range(3)], axis=0)
    # Reported: 25 to 37 % less at the median.
    assert -0.37 <= ours[0] / manual[0] - 1 <= -0.25
    # Reported: 4 to 8 points more completed, 10 to 20 of the cores and 13 to 25 of the memory in
    # use. The directions hold, the amounts do not. A job that deals its data in shards survives
    # every interruption here. Workers are added, up to 60, as long as a job gets any faster, which
    # without noise it always does, and wait for servers more and more. Memory is planned from a
    # need that is known exactly, which it never is in production.
    completion, cpus, memory = (ours - manual)[1:]
    assert completion > 0.08
    assert 0 < cpus < 0.1
    assert memory > 0.25
