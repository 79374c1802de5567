"""Instants: how times are rounded to them, where the clock ends, and that every run ends with
it.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import inf

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators import make
from sim.clock import LATEST_S, STEP_S, instant, instants, later
from sim.cluster import Change, Cluster
from sim.conditions import Conditions
from sim.contract import Plan, Spec, View
from sim.engine.faults import Faults
from sim.engine.simulator import Simulator
from sim.errors import ClusterError, ParameterError, TraceError
from sim.perf.model import Rate
from sim.perf.parameter_server import ParameterServer
from sim.result import RunResult
from sim.trace import Trace
from tests.sim.scripted import Bends, Greedy, Script, jobs, on, run

MICROS = st.integers(0, int(LATEST_S * 1e6))


def simulated(spec: str, trace: Trace, cluster: str, under: Conditions | None = None) -> RunResult:
    return Simulator(
        trace, Cluster.parse(cluster), make(Spec.parse(spec)), under or Conditions()
    ).run()


def of(*rows: tuple[float, int, float]) -> Trace:
    frame = pd.DataFrame(rows, columns=["submit_time_s", "num_gpus", "duration_s"])
    return Trace.of(frame.assign(job_id=[f"j{at}" for at in range(len(rows))]))


class TestInstants:
    @given(MICROS)
    def test_a_whole_number_of_microseconds_is_the_double_nearest_to_it(self, micros: int) -> None:
        at_s = instant(micros / 1e6)
        assert at_s == float(Fraction(micros, 10**6)) == instant(at_s)
        assert instant(at_s + 0.1e-6) == at_s
        assert later(at_s, at_s) == float(Fraction(micros + 1, 10**6))

    @given(st.floats(0, LATEST_S))
    def test_it_is_the_nearest(self, at_s: float) -> None:
        assert abs(Fraction(instant(at_s)) - Fraction(at_s)) <= Fraction(1, 10**6) / 2 + Fraction(
            np.spacing(at_s)
        )

    @given(MICROS, MICROS)
    def test_decimal_times_add_up(self, one: int, other: int) -> None:
        assert (
            instant(one / 1e6 + min(other, int(1e14)) / 1e6) == (one + min(other, int(1e14))) / 1e6
        )

    def test_columns_and_infinity(self) -> None:
        assert instant(inf) == later(inf, 5.0) == inf
        assert instants(np.array([0.1 + 0.2, np.nan, 1.0000004])).tolist()[::2] == [0.3, 1.0]
        assert later(7.0, 5.0) == 7.0


class TestBorders:
    def test_times_of_a_trace_are_instants(self) -> None:
        trace = of((1700000000.3, 1, 1), (1700000000.1, 1, 1))
        assert trace.numbers("submit_time_s").tolist() == [0.0, 0.2]

    @pytest.mark.parametrize(
        ("rows", "what"),
        [
            (
                ((0, 1, 1), (1e12, 1, 1)),
                r"row 2 is submitted 1e\+12 s after the first job .*milliseconds",
            ),
            (
                ((0, 1, 1e12),),
                r"row 1 runs for 1e\+12 s \(duration_s; 1 such rows\).*drop such rows",
            ),
        ],
    )
    def test_times_after_the_clock_ends_are_refused(
        self, rows: tuple[tuple[float, int, float], ...], what: str
    ) -> None:
        with pytest.raises(TraceError, match=what):
            of(*rows)

    def test_so_are_horizons_outages_and_changes(self) -> None:
        with pytest.raises(ParameterError, match=r"horizon_s = 1e\+12 is after the clock ends"):
            simulated("fifo", of((0, 1, 1)), "1x1:v100", Conditions(horizon_s=1e12))
        with pytest.raises(
            ParameterError, match="outage '0:1e12:2e12' begins after the clock ends"
        ):
            simulated(
                "fifo", of((0, 1, 1)), "1x1:v100", Conditions(faults=Faults(outages="0:1e12:2e12"))
            )
        late = Cluster(Cluster.parse("1x1:v100").groups, changes=(Change(1e12, (0,), False),))
        with pytest.raises(ClusterError, match=r"The change at 1e\+12 s is after the clock ends"):
            Simulator(of((0, 1, 1)), late, make(Spec("fifo")))

    def test_what_would_be_later_never_happens(self) -> None:
        # Two jobs of 1.5e9 s on one GPU: the second would end at 3e9 s.
        result = simulated("fifo", of((0, 1, 1.5e9), (0, 1, 1.5e9)), "1x1:v100")
        assert result.jobs["outcome"].tolist() == ["completed", "unfinished"]
        assert result.reason.startswith(
            "1 of the jobs would still run when the clock ends, 2e+09 s (63 years)"
        )
        assert result.end_s == 1.5e9

    def test_a_wake_up_after_the_end_is_none(self) -> None:
        script = Script({0: Plan(wake_at_s=1e12)})
        result = run(jobs((0, 1, 10)), "1x1:v100", script)
        assert result.reason.startswith("1 of the jobs can never start")
        assert result.end_s == 0

    def test_ten_thousand_jobs_at_one_instant(self) -> None:
        trace = of(*[(5.0, 1, 1.0)] * 10_000)
        result = simulated("fifo", trace, "125x8:v100")
        assert (result.reason, result.jobs["finish_s"].max(), len(result.decisions)) == (
            "drained",
            10.0,
            10,
        )


class TestBreaks:
    """What a model says of its rates; job 0 does 10 of work."""

    def test_a_break_at_an_amount_of_work_is_reached_exactly(self) -> None:
        # A third of the work is at no microsecond: the model, which forgives nothing, is asked
        # once.
        asked: list[float] = []

        def rate(job: int, grant: object, done: float, now_s: float) -> Rate:
            asked.append(done)
            return Rate(1.0, until_work=10 / 3) if done < 10 / 3 else Rate(2.0)

        result = run(jobs((0, 1, 10)), "1x1:v100", Script({0: {0: on(0)}}), perf=Bends(rate))
        assert asked == [0.0, pytest.approx(10 / 3, rel=1e-15)]
        assert asked[1] >= 10 / 3
        assert result.segments["t1"].tolist() == [3.333333, instant(3.333333 + (10 - 10 / 3) / 2)]

    def test_a_break_is_reached_where_what_is_left_of_the_work_is_rounded_up(self) -> None:
        # In floats 7 - (7 - 0.1) is less than 0.1.
        asked: list[float] = []

        def rate(job: int, grant: object, done: float, now_s: float) -> Rate:
            asked.append(done)
            return Rate(1.0, until_work=0.1) if done < 0.1 else Rate(2.0)

        result = run(jobs((0, 1, 7)), "1x1:v100", Script({0: {0: on(0)}}), perf=Bends(rate))
        assert asked == [0.0, pytest.approx(0.1, rel=1e-14)]
        assert result.segments["t1"].tolist() == [0.1, 3.55]

    def test_a_break_by_a_clock_off_the_grid_is_asked_for_once(self) -> None:
        asked: list[float] = []

        def rate(job: int, grant: object, done: float, now_s: float) -> Rate:
            asked.append(now_s)
            return Rate(1.0, until_s=4.0000003) if now_s < 4.0000003 else Rate(2.0)

        result = run(jobs((0, 1, 10)), "1x1:v100", Script({0: {0: on(0)}}), perf=Bends(rate))
        assert asked == [0.0, 4.0, 4.000001]
        assert result.jobs["finish_s"][0] == instant(4.000001 + 5.999999 / 2)

    @pytest.mark.parametrize("until", [{"until_work": 4.0}, {"until_s": 4.0}])
    def test_a_model_that_never_gets_past_a_break_ends_the_run(
        self, until: dict[str, float]
    ) -> None:
        stuck = Bends(lambda job, grant, done, now_s: Rate(1.0, **until))
        result = run(jobs((0, 1, 10)), "1x1:v100", Greedy(), perf=stuck)
        assert result.reason.startswith(
            "Greedy was asked again and again at 4.000000 s without any job ending"
        )
        assert "the speed of job j0 was asked for last" in result.reason
        assert result.end_s == 4.0

    @pytest.mark.parametrize("start_s", [3e7 + 1 / 3, 1e9 + 1 / 7])
    def test_servers_whose_memory_grows_beside_a_straggler_end(self, start_s: float) -> None:
        frame = pd.DataFrame(
            {
                "job_id": ["z", "a"],
                "submit_time_s": [0.0, start_s],
                "num_gpus": 0,
                "duration_s": [1.0, 40_000.3],
                "model": "wide_deep",
                "batch_size": 1024.0,
                "workers": 2.0,
                "servers": 1.0,
                "worker_cpus": 2.0,
                "server_cpus": 2.0,
                "server_mem_gb": 10.0,
                "server_mem_need_gb": 5.0,
                "server_mem_growth_gb": [0.0, 15.0],
            }
        )
        slow = f"0:{start_s + 77.7}:{start_s + 1e6}:0.5"
        for fail in (0, 3):
            under = Conditions(ParameterServer(slow=slow), faults=Faults(retries=fail))
            result = simulated("fifo", Trace.of(frame), "1x0:cpu/32c/128g", under)
            assert result.reason == "drained"
            assert result.jobs["outcome"].tolist() == ["completed", "failed"]
            assert len(result.failures) == fail + 1


def test_a_policy_that_is_woken_at_once_for_ever_ends_the_run() -> None:
    class Restless(Greedy):
        def allocate(self, view: View, /) -> Plan:
            return super().allocate(view)._replace(wake_at_s=view.now_s)

    result = run(jobs((0, 1, 10_000)), "1x1:v100", Restless())
    assert result.reason.startswith("Restless was asked again and again at 0.1")
    assert result.jobs["outcome"].tolist() == ["unfinished"]


def test_nodes_that_fail_all_the_time_do_not_stop_the_clock() -> None:
    result = run(
        jobs((0, 1, 5)),
        "1x1:v100",
        Greedy(),
        faults=Faults(mtbf_h=0.0, outages="0:1:2;0:2:3"),
        horizon_s=9.0,
    )
    assert result.jobs["outcome"].tolist() == ["completed"]
    hectic = replace(Faults(), mtbf_h=1e-15, mttr_h=0.0)
    result = run(jobs((0, 1, 5)), "1x1:v100", Greedy(), faults=hectic, horizon_s=1e-3)
    assert len(result.outages) == 1000
    assert result.outages["t0"].diff().dropna().to_numpy() == pytest.approx(STEP_S)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "cluster", "rows"),
    [
        ("las", "1x16:v100", [(0, 1, 1), (939.149, 16, 9000), (1142.273, 16, 50)]),
        ("las:thresholds=1,promote_factor=1", "128x8:v100", [(0, 1024, 100), (5, 1024, 50)]),
    ],
)
def test_runs_of_las_that_never_ended_once(
    spec: str, cluster: str, rows: list[tuple[float, int, float]]
) -> None:
    result = simulated(spec, of(*rows), cluster)
    assert result.reason == "drained"
    assert (result.jobs["outcome"] == "completed").all()
