"""Progress, pauses, checkpoints and losses, computed by hand. One unit of work is one second at
rate 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from sim.cluster import Cluster, GpuType, NodeGroup
from sim.contract import Cadence, Floats, Ints, Needs, Plan, View
from sim.engine.faults import Faults
from sim.errors import InfeasiblePlan, ParameterError
from sim.grants import Gang, Grant, Part, Shape, Tuning
from sim.overheads import Overheads
from sim.perf.model import Rate
from sim.perf.rigid import Rigid
from sim.trace import Trace
from tests.sim.scripted import BendingModel, Bends, Greedy, Script, across, gantt, jobs, on, run

ONE = jobs((0, 1, 10))
SLOW_FAST = Cluster(
    (NodeGroup(1, 1, "slow"), NodeGroup(1, 1, "fast")), (GpuType("slow", 1.0), GpuType("fast", 2.0))
)


def test_a_start_pauses() -> None:
    result = run(ONE, "1x1:v100", Greedy(), Overheads(start_s=2))
    # 2 s pause, then 10 s of work.
    assert gantt(result) == ["j0 0-12 n0x1 pause 2 finished"]
    assert result.jobs.loc[
        0, ["held_s", "paused_s", "served_gpu_s", "lost_work", "preemptions"]
    ].tolist() == [12, 2, 12, 0, 0]


def test_a_planned_stop_keeps_the_work() -> None:
    script = Script({0: {0: on(0)}, 4: {0: None}, 6: {0: on(0)}})
    result = run(ONE, "1x1:v100", script, Overheads(start_s=1, restart_s=3))
    # 1 s pause and 3 s of work until 4; the restart at 6 pauses 3 s, and 7 s are left: 6 + 3 + 7 =
    # 16.
    assert gantt(result) == ["j0 0-4 n0x1 pause 1 preempted", "j0 6-16 n0x1 pause 3 finished"]
    assert result.jobs.loc[0, ["preemptions", "evictions", "lost_work", "paused_s"]].tolist() == [
        1,
        0,
        0,
        4,
    ]


@pytest.mark.parametrize("on_preempt", ["checkpoint", "lose_all"])
def test_a_suspended_job_loses_nothing_and_goes_on_at_once(on_preempt: str) -> None:
    stop = Plan({0: None}, seamless=frozenset({0}))
    script = Script({0: {0: on(0)}, 1: stop, 3: {0: on(0)}, 8: stop, 9: {0: on(0)}})
    costs = Overheads(start_s=2, restart_s=3, on_preempt=on_preempt)
    result = run(ONE, "1x1:v100", script, costs)
    # 1 s of the first pause is left at the first stop: it ends at 4. 4 s of work until 8; 6 s from
    # 9 on.
    assert gantt(result) == [
        "j0 0-1 n0x1 pause 1 preempted",
        "j0 3-8 n0x1 pause 1 preempted",
        "j0 9-15 n0x1 finished",
    ]
    assert result.jobs.loc[0, ["preemptions", "lost_work", "paused_s"]].tolist() == [2, 0, 2]


def test_a_suspended_job_that_goes_on_elsewhere_is_restarted() -> None:
    stop = Plan({0: None}, seamless=frozenset({0}))
    script = Script({0: {0: on(0)}, 4: stop, 6: {0: on(1)}})
    result = run(ONE, "2x1:v100", script, Overheads(restart_s=3))
    assert gantt(result) == ["j0 0-4 n0x1 preempted", "j0 6-15 n1x1 pause 3 finished"]


def test_an_outage_after_a_suspension_costs_the_work_since_the_last_checkpoint() -> None:
    # Saved after 3 s of work; 1 s more before the stop, 1 s behind it: 2 are lost.
    stop = Plan({0: None}, seamless=frozenset({0}))
    script = Script({0: {0: on(0)}, 4: stop, 6: {0: on(0)}, 9: {0: on(0)}})
    costs = Overheads(checkpoint_every_s=3.0)
    result = run(ONE, "1x1:v100", script, costs, Faults(outages="0:7:8"))
    assert result.jobs["lost_work"].tolist() == [2.0]


def test_a_stop_within_the_pause_counts_only_the_pause_so_far() -> None:
    script = Script({0: {0: on(0)}, 3: {0: None}, 4: {0: on(0)}})
    result = run(ONE, "1x1:v100", script, Overheads(start_s=5, restart_s=1))
    # 3 s of the first pause were served, no work done; 4 + 1 + 10 = 15.
    assert gantt(result) == ["j0 0-3 n0x1 pause 3 preempted", "j0 4-15 n0x1 pause 1 finished"]


@pytest.mark.parametrize(
    ("every", "lost", "finish"),
    [(3.0, 1.0, 12.0), (3.5, 0.0, 11.0), (100.0, 7.0, 18.0), (0.0, 7.0, 18.0)],
)
def test_an_outage_costs_the_work_since_the_last_checkpoint(
    every: float, lost: float, finish: float
) -> None:
    # At 7 s, 7 are done. Saved: at 3 and 6, lost 1; at 3.5 and 7, lost 0; never, lost 7. Back at 8:
    # 8 + 3 + lost.
    result = run(
        ONE, "1x1:v100", Greedy(), Overheads(checkpoint_every_s=every), Faults(outages="0:7:8")
    )
    assert result.jobs.loc[0, ["lost_work", "finish_s", "evictions", "preemptions"]].tolist() == [
        lost,
        finish,
        1,
        0,
    ]
    assert gantt(result) == ["j0 0-7 n0x1 evicted", f"j0 8-{finish:g} n0x1 finished"]


def test_pauses_are_no_progress_towards_a_checkpoint() -> None:
    result = run(
        ONE,
        "1x1:v100",
        Greedy(),
        Overheads(start_s=2, restart_s=1, checkpoint_every_s=3),
        Faults(outages="0:7:8"),
    )
    # Progress from 2 to 7 is 5 s, saved after 3: lost 2. Back at 8, pause to 9, 10 - 3 = 7 left:
    # 16.
    assert result.jobs.loc[0, ["lost_work", "finish_s", "paused_s"]].tolist() == [2, 16, 3]


def test_a_checkpoint_boundary_missed_by_rounding_counts() -> None:
    # 0.3 + 3 * 0.1 is 0.6 only nearly: 0.6 - 0.3 = 0.3 against 3 periods of 0.1 s.
    trace = jobs((0, 1, 1), (0.3, 1, 10))
    result = run(
        trace,
        "2x1:v100",
        Script({0.3: {1: on(1)}, 5: {0: on(0)}}),
        Overheads(checkpoint_every_s=0.1),
        Faults(outages="1:0.6:1"),
        horizon_s=6.0,
    )
    assert result.jobs["lost_work"][1] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(("outage", "lost"), [(3.5, 0.5), (5.5, 4.0), (6.5, 1.0)])
def test_lost_work_across_a_change_of_rate(outage: float, lost: float) -> None:
    # Rate 1 up to 4 units, then 2; saved every 3 s of progress, so at 3 s and 6 s. At 5.5: 1 unit
    # at rate 1 + 1.5 s x 2. At 6.5: 0.5 s x 2.
    def rate(job: int, grant: Grant, done: float, now_s: float) -> Rate:
        return Rate(1.0, until_work=4.0) if done < 4 else Rate(2.0)

    result = run(
        jobs((0, 1, 20)),
        "1x1:v100",
        Greedy(),
        Overheads(checkpoint_every_s=3),
        Faults(outages=f"0:{outage}:99"),
        perf=Bends(rate),
        horizon_s=50.0,
    )
    assert result.jobs["lost_work"][0] == pytest.approx(lost)


def test_a_planned_stop_saves_first() -> None:
    script = Script({0: {0: on(0)}, 4: {0: None}, 5: {0: on(0)}, 8: {0: on(0)}})
    result = run(ONE, "1x1:v100", script, Overheads(checkpoint_every_s=0), Faults(outages="0:6:7"))
    # 4 are saved by the stop; of the stint from 5, 1 s is lost at 6; from 8 on 6 are left.
    assert result.jobs.loc[0, ["lost_work", "finish_s"]].tolist() == [1, 14]


def test_lose_all_loses_all_at_every_stop_and_change() -> None:
    stopped = Script({0: {0: on(0)}, 4: {0: None}, 5: {0: on(0)}})
    result = run(ONE, "1x1:v100", stopped, Overheads(on_preempt="lose_all"))
    assert result.jobs.loc[0, ["lost_work", "finish_s"]].tolist() == [4, 15]
    changed = Script({0: {0: on(0)}, 4: {0: on(1)}})
    result = run(ONE, "2x1:v100", changed, Overheads(on_preempt="lose_all"))
    assert result.jobs.loc[0, ["lost_work", "finish_s"]].tolist() == [4, 14]


def test_lose_all_does_not_make_outages_worse() -> None:
    result = run(
        ONE,
        "1x1:v100",
        Greedy(),
        Overheads(on_preempt="lose_all", checkpoint_every_s=3),
        Faults(outages="0:7:8"),
    )
    assert result.jobs["lost_work"][0] == 1


@pytest.mark.parametrize("change", [None, on(1)])
@pytest.mark.parametrize(
    ("rule", "column"), [("forbidden", float("nan")), ("forbidden", 0.0), ("checkpoint", 0.0)]
)
def test_what_must_not_be_stopped_is_not(change: Grant | None, rule: str, column: float) -> None:
    script = Script({0: {0: on(0)}, 4: {0: change}})
    with pytest.raises(
        InfeasiblePlan,
        match=(
            r"Script made an impossible plan at 4\.000 s for job 0 \(j0\): it must not be stopped"
            r" or changed once it runs"
        ),
    ):
        run(jobs((0, 1, 10), preemptible=[column]), "2x1:v100", script, Overheads(on_preempt=rule))


def test_a_job_of_its_own_will_may_be_stopped() -> None:
    script = Script({0: {0: on(0)}, 4: {0: None}, 5: {0: on(0)}})
    result = run(
        jobs((0, 1, 10), preemptible=[1.0]), "1x1:v100", script, Overheads(on_preempt="forbidden")
    )
    assert result.jobs["finish_s"][0] == 11


def test_an_outage_may_stop_what_no_plan_may() -> None:
    result = run(
        ONE, "1x1:v100", Greedy(), Overheads(on_preempt="forbidden"), Faults(outages="0:7:8")
    )
    assert result.jobs["evictions"][0] == 1


def test_checkpoints_take_time() -> None:
    # 9 s of progress, then 1 s of saving: rate 0.9, so 9 units take 10 s.
    result = run(
        jobs((0, 1, 9)), "1x1:v100", Greedy(), Overheads(checkpoint_every_s=9, checkpoint_s=1)
    )
    assert result.jobs["finish_s"][0] == 10
    assert result.segments["rate"][0] == 0.9


@pytest.mark.parametrize(("outage", "lost"), [(9.5, 8.55), (10.5, 0.45)])
def test_saving_takes_part_in_the_period(outage: float, lost: float) -> None:
    # A period is 9 s of progress and 1 s of saving. At 9.5 nothing is saved yet: 9.5 x 0.9. At 10.5
    # half a second is unsaved.
    result = run(
        jobs((0, 1, 90)),
        "1x1:v100",
        Greedy(),
        Overheads(checkpoint_every_s=9, checkpoint_s=1),
        Faults(outages=f"0:{outage}:99"),
        horizon_s=50.0,
    )
    assert result.jobs["lost_work"][0] == pytest.approx(lost)


def test_a_move_pauses_and_changes_the_rate() -> None:
    result = run(ONE, SLOW_FAST, Script({0: {0: on(0)}, 4: {0: on(1)}}), Overheads(restart_s=1))
    # 4 done at 4; pause to 5; 6 left at rate 2: 8.
    assert gantt(result) == ["j0 0-4 n0x1 changed", "j0 4-8 n1x1 pause 1 rate 2 finished"]
    assert result.jobs["preemptions"][0] == 1


def test_an_overlap_charges_both_and_runs_on() -> None:
    result = run(
        ONE, SLOW_FAST, Script({0: {0: on(0)}, 4: {0: on(1)}}), Overheads(restart_s=1, overlap_s=2)
    )
    # Old rate until 6, then 1 s pause, then 4 left at rate 2: 9.
    assert gantt(result) == [
        "j0 0-4 n0x1 changed",
        "j0 4-6 n0x1 n1x1 changed",
        "j0 6-9 n1x1 pause 1 rate 2 finished",
    ]
    assert result.jobs.loc[0, ["served_gpu_s", "held_s"]].tolist() == [4 + 2 * 2 + 3, 9]


def test_a_job_may_finish_while_holdings_overlap() -> None:
    result = run(ONE, SLOW_FAST, Script({0: {0: on(0)}, 9: {0: on(1)}}), Overheads(overlap_s=2))
    assert gantt(result) == ["j0 0-9 n0x1 changed", "j0 9-10 n0x1 n1x1 finished"]


@pytest.mark.parametrize("node", [0, 1])
def test_an_outage_within_an_overlap_costs_the_work_since_the_last_checkpoint(node: int) -> None:
    script = Script({0: {0: on(0)}, 4: {0: on(1)}})
    result = run(
        ONE,
        SLOW_FAST,
        script,
        Overheads(overlap_s=4, checkpoint_every_s=3),
        Faults(outages=f"{node}:5:99"),
        horizon_s=20.0,
    )
    # Five seconds of progress, saved after 3.
    assert result.jobs["lost_work"][0] == 2
    assert gantt(result)[-1] == "j0 4-5 n0x1 n1x1 evicted"
    assert script.calls[2].delta.evicted == ((0, "outage", "worker", 2.0),)


def test_a_break_point_within_an_overlap_concerns_the_old_grant() -> None:
    def rate(job: int, grant: Grant, done: float, now_s: float) -> Rate:
        if grant.gangs[0].workers.nodes == (1,):
            return Rate(2.0)
        return Rate(1.0, until_work=5.0) if done < 5 else Rate(0.5)

    result = run(
        ONE,
        SLOW_FAST,
        Script({0: {0: on(0)}, 4: {0: on(1)}}),
        Overheads(overlap_s=2),
        perf=Bends(rate),
    )
    # 5 done at 5, 5.5 at 6; 4.5 left at rate 2.
    assert result.jobs["finish_s"][0] == 8.25


def test_a_stop_within_an_overlap_gives_all_back() -> None:
    script = Script({0: {0: on(0)}, 4: {0: on(1)}, 5: {0: None}, 7: {0: on(0)}})
    result = run(ONE, SLOW_FAST, script, Overheads(overlap_s=2))
    assert result.jobs["finish_s"][0] == 7 + 5


def test_a_second_change_within_an_overlap_starts_from_the_first() -> None:
    script = Script({0: {0: on(0)}, 4: {0: on(1)}, 5: {0: on(2)}})
    result = run(ONE, "3x1:v100", script, Overheads(overlap_s=2))
    lines = [line for line in gantt(result) if not line.startswith("j0 5-5")]
    assert lines == [
        "j0 0-4 n0x1 changed",
        "j0 4-5 n0x1 n1x1 changed",
        "j0 5-7 n1x1 n2x1 changed",
        "j0 7-10 n2x1 finished",
    ]


def test_out_of_memory_at_a_break_point_evicts() -> None:
    def rate(job: int, grant: Grant, done: float, now_s: float) -> Rate:
        return Rate(1.0, until_work=6.0, then="oom") if grant == on(0) else Rate(1.0)

    script = Script({0: {0: on(0)}, 8: {0: on(1)}})
    result = run(ONE, "2x1:v100", script, Overheads(checkpoint_every_s=4), perf=Bends(rate))
    assert gantt(result) == ["j0 0-6 n0x1 evicted", "j0 8-14 n1x1 finished"]
    assert [call.delta.evicted for call in script.calls if call.delta.evicted] == [
        ((0, "oom", "worker", 2.0),)
    ]


def test_a_straggler_begins_at_an_instant_even_within_a_pause() -> None:
    def rate(job: int, grant: Grant, done: float, now_s: float) -> Rate:
        return Rate(1.0, until_s=3.0) if now_s < 3 else Rate(0.5)

    result = run(jobs((0, 1, 4)), "1x1:v100", Greedy(), Overheads(start_s=5), perf=Bends(rate))
    # The pause to 5 goes on across the instant 3; then 4 units at rate 0.5.
    assert gantt(result) == [
        "j0 0-3 n0x1 pause 3 changed",
        "j0 3-13 n0x1 pause 2 rate 0.5 finished",
    ]


@pytest.mark.parametrize("wrong", [nan, inf, -1.0])
@pytest.mark.parametrize("from_s", [0.0, 5.0])
def test_a_rate_that_is_no_speed_is_refused(wrong: float, from_s: float) -> None:
    # j0 ends at 3 on the only GPU; j1 runs on it from then on.
    def rate(job: int, grant: Grant, done: float, now_s: float) -> Rate:
        return Rate(1.0, until_s=5.0) if job == 0 or now_s < from_s else Rate(wrong)

    told = rf"^Bends gives job j1 a rate of {wrong:g}\. Correct the profile or the parameters"
    with pytest.raises(ParameterError, match=told):
        run(jobs((0, 1, 3), (1, 1, 9)), "1x1:v100", Greedy(), perf=Bends(rate))


@pytest.mark.parametrize("wrong", [nan, inf])
def test_expected_rates_that_are_no_speed_are_refused(wrong: float) -> None:
    class Broken(BendingModel):
        def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
            return np.where(ids[:, None] == 1, wrong, np.ones((len(ids), len(shapes))))

    class BrokenSpec(Bends):
        def bind(self, trace: Trace, cluster: Cluster) -> BendingModel:
            return Broken(self.rate, Rigid().bind(trace, cluster), trace)

    def ask(view: View) -> Plan:
        view.estimates.rates(view.waiting.ids, [Shape((1,), 1)])
        return Plan({})

    spec = BrokenSpec(lambda job, grant, done, now_s: Rate(1.0))
    script = Script({0: ask}, needs=Needs(reads=frozenset({"rates"})))
    with pytest.raises(ParameterError, match=f"BrokenSpec gives job j1 a rate of {wrong:g}"):
        run(jobs((0, 1, 3), (0, 1, 9)), "1x1:v100", script, perf=spec)


def test_a_rate_of_zero_holds_until_it_is_asked_again() -> None:
    def rate(job: int, grant: Grant, done: float, now_s: float) -> Rate:
        return Rate(0.0, until_s=5.0) if now_s < 5 else Rate(1.0)

    result = run(ONE, "1x1:v100", Greedy(), perf=Bends(rate))
    assert result.jobs["finish_s"][0] == 15


def test_retries_are_counted_and_then_the_job_has_failed() -> None:
    result = run(ONE, "1x1:v100", Greedy(), faults=Faults(outages="0:2:3;0:5:6", retries=1))
    assert result.jobs.loc[0, ["outcome", "evictions"]].tolist() == ["failed", 2]
    assert result.jobs["finish_s"].isna().all()
    assert result.end_s == 5
    assert result.reason == "drained"


class TestForks:
    """Two copies, on node 0 at rate 1 and on node 1 at rate 2."""

    BOTH = Grant((Gang(Part((0,), (1,))), Gang(Part((1,), (1,)))))

    def test_copies_add_up(self) -> None:
        result = run(jobs((0, 1, 12)), SLOW_FAST, Script({0: {0: self.BOTH}}))
        assert gantt(result) == ["j0 0-4 n0x1 n1x1 rate 3 finished"]

    def test_losing_a_node_loses_only_its_copy(self) -> None:
        script = Script({0: {0: self.BOTH}})
        result = run(
            jobs((0, 1, 12)),
            SLOW_FAST,
            script,
            Overheads(checkpoint_every_s=2),
            Faults(outages="1:3:99"),
        )
        # 9 done at 3, 6 of them saved at 2; node 1 made 2/3 of the unsaved 3: 2 are lost. 12 - 9 +
        # 2 = 5 left at rate 1.
        assert gantt(result) == ["j0 0-3 n0x1 n1x1 rate 3 changed", "j0 3-8 n0x1 finished"]
        assert result.jobs.loc[0, ["lost_work", "evictions", "preemptions"]].tolist() == [
            pytest.approx(2),
            0,
            0,
        ]
        assert script.calls[1].delta == ((), (), (), (1,), ())

    def test_losing_all_copies_evicts(self) -> None:
        script = Script({0: {0: self.BOTH}})
        result = run(
            jobs((0, 1, 12)),
            SLOW_FAST,
            script,
            Overheads(checkpoint_every_s=2),
            Faults(outages="1:3:99;0:3.5:99"),
            horizon_s=9.0,
        )
        # At 3.5 another 0.5 is unsaved beside the 1 that the surviving copy kept; the saves of the
        # job come at 2 and 4.
        assert result.jobs["lost_work"][0] == pytest.approx(2 + 1.5)
        assert result.jobs["evictions"][0] == 1

    def test_a_server_takes_its_gang_along(self) -> None:
        grant = Grant((Gang(Part((0,), (1,)), Part((1,), (1,), 0, 1.0)),))
        script = Script({0: {0: grant}})
        run(
            ONE,
            SLOW_FAST,
            script,
            Overheads(checkpoint_every_s=0),
            Faults(outages="1:3:99"),
            horizon_s=9.0,
        )
        assert script.calls[1].delta.evicted == ((0, "outage", "server", 3.0),)

    def test_a_change_of_one_copy_pauses_its_share(self) -> None:
        moved = Grant((Gang(Part((0,), (1,))), Gang(Part((2,), (1,)))))
        script = Script({0: {0: self.BOTH}, 2: {0: moved}})
        cluster = Cluster((NodeGroup(1, 1, "slow"), NodeGroup(2, 1, "fast")), SLOW_FAST.types)
        result = run(jobs((0, 1, 12)), cluster, script, Overheads(restart_s=3))
        # Two thirds of the rate moved: a pause of 2 s; 6 left at rate 3.
        assert gantt(result) == [
            "j0 0-2 n0x1 n1x1 rate 3 changed",
            "j0 2-6 n0x1 n2x1 pause 2 rate 3 finished",
        ]

    def test_a_new_tuning_pauses_all(self) -> None:
        script = Script({0: {0: self.BOTH}, 2: {0: replace(self.BOTH, tuning=Tuning(64))}})
        result = run(jobs((0, 1, 12)), SLOW_FAST, script, Overheads(restart_s=3))
        assert result.jobs["finish_s"][0] == 2 + 3 + 2

    def test_copies_that_do_nothing_pause_in_full_and_lose_nothing(self) -> None:
        moved = Grant((Gang(Part((0,), (1,))), Gang(Part((2,), (1,)))))
        script = Script({0: {0: self.BOTH}, 2: {0: moved}})
        idle = Bends(
            lambda job, grant, done, now_s: Rate(0.0, until_s=9.0) if now_s < 9 else Rate(1.0)
        )
        result = run(
            jobs((0, 1, 12)),
            "3x1:v100",
            script,
            Overheads(restart_s=3),
            Faults(outages="2:6:8"),
            perf=idle,
        )
        assert gantt(result)[1:3] == [
            "j0 2-6 n0x1 n2x1 pause 3 rate 0 changed",
            "j0 6-9 n0x1 rate 0 changed",
        ]
        assert result.jobs["lost_work"][0] == 0

    def test_an_interruption_comes_sooner_on_more_nodes(self) -> None:
        faults = Faults(interruptions_per_node_h=3600, outages="1:0.1:99")
        both = faults.interruption_s(5, 0, 0)
        assert both > 0.2
        result = run(
            jobs((0, 1, 99)),
            SLOW_FAST,
            Script({0: {0: self.BOTH}}),
            faults=faults,
            seed=5,
            horizon_s=5.0,
        )
        # 0.1 s on two nodes use up 0.2 s of it.
        assert result.segments["t1"].tolist()[1] == pytest.approx(0.1 + both - 0.2)


def test_an_interruption_across_an_overlap_counts_the_nodes_of_the_old_grant() -> None:
    faults = Faults(interruptions_per_node_h=3600)
    after = faults.interruption_s(5, 0, 0)
    script = Script({0: {0: across({0: 1, 1: 1})}, after / 8: {0: on(2, 2)}})
    result = run(
        jobs((0, 2, 99)),
        "2x1:v100,1x2:v100",
        script,
        Overheads(overlap_s=after / 8),
        faults,
        seed=5,
        horizon_s=9.0,
    )
    # Two nodes for a quarter of the time use up half of it.
    assert result.segments["t1"].tolist()[2] == pytest.approx(after * 0.75, abs=5e-6)


def test_a_job_that_makes_no_progress_at_all_does_not_end() -> None:
    stuck = Bends(lambda job, grant, done, now_s: Rate(0.0))
    result = run(ONE, "1x1:v100", Greedy(), perf=stuck, horizon_s=50.0)
    assert gantt(result) == ["j0 0-50 n0x1 rate 0 open"]
    later = Bends(
        lambda job, grant, done, now_s: Rate(1.0, until_s=3.0) if now_s < 3 else Rate(0.0)
    )
    assert gantt(run(ONE, "1x1:v100", Greedy(), perf=later, horizon_s=50.0)) == [
        "j0 0-3 n0x1 changed",
        "j0 3-50 n0x1 rate 0 open",
    ]


def test_whoever_is_not_interested_is_not_asked_after_an_overlap_or_an_eviction() -> None:
    deaf = Cadence(on_finish=False, on_capacity=False)
    script = Script({0: {0: on(0)}, 4: {0: on(1)}}, deaf)
    run(ONE, "2x1:v100", script, Overheads(overlap_s=2))
    assert script.times == [0, 4]
    script = Script({0: {0: on(0)}, 9: {0: on(0)}}, deaf)
    run(ONE, "1x1:v100", script, Overheads(checkpoint_every_s=0), Faults(outages="0:5:6"))
    assert script.times == [0, 9]


def test_an_ended_overlap_names_its_nodes_and_makes_nothing_in_flight_void() -> None:
    script = Script({0: {0: on(0)}, 4: {0: on(1)}, 6: {1: on(0)}})
    result = run(
        jobs((0, 1, 20), (6, 1, 5)), "2x1:v100", script, Overheads(overlap_s=2, latency_s=0.5)
    )
    # The change is sent at 4, lands at 4.5, and overlaps until 6.5, when the start of job 1 lands
    # on the node that is free from then on.
    assert [(call.now_s, call.delta.nodes) for call in script.calls] == [
        (0, ()),
        (4, ()),
        (6, ()),
        (6.5, (0, 1)),
        (11.5, ()),
    ]
    assert result.jobs["first_start_s"].tolist() == [0.5, 6.5]


def test_only_jobs_that_the_plan_names_move_seamlessly() -> None:
    moves = {0: {0: on(0)}, 4: {0: on(1)}}
    costs = Overheads(restart_s=1, overlap_s=2, overlap_pause_s=0.5)
    seamless, plain = (
        run(ONE, SLOW_FAST, Script(moves), costs),
        run(ONE, SLOW_FAST, Script(moves, seamless=False), costs),
    )
    # The seamless move holds both nodes from 4 to 6, the plain one pauses from 4 to 5 on the new
    # node alone.
    assert seamless.segments["gpus"].max() == 2
    assert seamless.segments["paused_s"].tolist() == [0, 0, 0.5]
    assert plain.segments["gpus"].max() == 1
    assert plain.segments["paused_s"].tolist() == [0, 1]
