"""Progress, pauses, checkpoints and losses, computed by hand. One unit of work is one second at rate 1."""

from __future__ import annotations

import pytest

from sim.cluster import Cluster, GpuType, NodeGroup
from sim.errors import InfeasiblePlan
from sim.faults import Faults
from sim.grants import Grant
from sim.overheads import Overheads
from sim.perf.model import Rate
from tests.sim.scripted import Bends, Greedy, Script, gantt, jobs, on, run

ONE = jobs((0, 1, 10))
SLOW_FAST = Cluster((NodeGroup(1, 1, "slow"), NodeGroup(1, 1, "fast")), (GpuType("slow", 1.0), GpuType("fast", 2.0)))


def test_a_start_pauses() -> None:
    result = run(ONE, "1x1:v100", Greedy(), Overheads(start_s=2))
    # 2 s pause, then 10 s of work.
    assert gantt(result) == ["j0 0-12 n0x1 pause 2 finished"]
    assert result.jobs.loc[0, ["held_s", "paused_s", "served_gpu_s", "lost_work", "preemptions"]].tolist() == [12, 2, 12, 0, 0]


def test_a_planned_stop_keeps_the_work() -> None:
    script = Script({0: {0: on(0)}, 4: {0: None}, 6: {0: on(0)}})
    result = run(ONE, "1x1:v100", script, Overheads(start_s=1, restart_s=3))
    # 1 s pause and 3 s of work until 4; the restart at 6 pauses 3 s, and 7 s are left: 6 + 3 + 7 = 16.
    assert gantt(result) == ["j0 0-4 n0x1 pause 1 preempted", "j0 6-16 n0x1 pause 3 finished"]
    assert result.jobs.loc[0, ["preemptions", "evictions", "lost_work", "paused_s"]].tolist() == [1, 0, 0, 4]


def test_a_stop_within_the_pause_counts_only_the_pause_so_far() -> None:
    script = Script({0: {0: on(0)}, 3: {0: None}, 4: {0: on(0)}})
    result = run(ONE, "1x1:v100", script, Overheads(start_s=5, restart_s=1))
    # 3 s of the first pause were served, no work done; 4 + 1 + 10 = 15.
    assert gantt(result) == ["j0 0-3 n0x1 pause 3 preempted", "j0 4-15 n0x1 pause 1 finished"]


@pytest.mark.parametrize(("every", "lost", "finish"), [(3.0, 1.0, 12.0), (3.5, 0.0, 11.0), (100.0, 7.0, 18.0), (0.0, 7.0, 18.0)])
def test_an_outage_costs_the_work_since_the_last_checkpoint(every: float, lost: float, finish: float) -> None:
    # At 7 s, 7 are done. Saved: at 3 and 6, lost 1; at 3.5 and 7, lost 0; never, lost 7. Back at 8: 8 + 3 + lost.
    result = run(ONE, "1x1:v100", Greedy(), Overheads(checkpoint_every_s=every), Faults(outages="0:7:8"))
    assert result.jobs.loc[0, ["lost_work", "finish_s", "evictions", "preemptions"]].tolist() == [lost, finish, 1, 0]
    assert gantt(result) == ["j0 0-7 n0x1 evicted", f"j0 8-{finish:g} n0x1 finished"]


def test_pauses_are_no_progress_towards_a_checkpoint() -> None:
    result = run(ONE, "1x1:v100", Greedy(), Overheads(start_s=2, restart_s=1, checkpoint_every_s=3), Faults(outages="0:7:8"))
    # Progress from 2 to 7 is 5 s, saved after 3: lost 2. Back at 8, pause to 9, 10 - 3 = 7 left: 16.
    assert result.jobs.loc[0, ["lost_work", "finish_s", "paused_s"]].tolist() == [2, 16, 3]


def test_a_checkpoint_boundary_missed_by_rounding_counts() -> None:
    # 0.3 + 3 * 0.1 is 0.6 only nearly: 0.6 - 0.3 = 0.3 against 3 periods of 0.1 s.
    trace = jobs((0, 1, 1), (0.3, 1, 10))
    result = run(trace, "2x1:v100", Script({0.3: {1: on(1)}, 5: {0: on(0)}}), Overheads(checkpoint_every_s=0.1), Faults(outages="1:0.6:1"), horizon_s=6.0)
    assert result.jobs["lost_work"][1] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(("outage", "lost"), [(3.5, 0.5), (5.5, 4.0), (6.5, 1.0)])
def test_lost_work_across_a_change_of_rate(outage: float, lost: float) -> None:
    # Rate 1 up to 4 units, then 2; saved every 3 s of progress, so at 3 s and 6 s. At 5.5: 1 unit at rate 1 + 1.5 s x 2. At 6.5: 0.5 s x 2.
    def rate(job: int, grant: Grant, done: float, now_s: float) -> Rate:
        return Rate(1.0, until_work=4.0) if done < 4 else Rate(2.0)

    result = run(jobs((0, 1, 20)), "1x1:v100", Greedy(), Overheads(checkpoint_every_s=3), Faults(outages=f"0:{outage}:99"), perf=Bends(rate), horizon_s=50.0)
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
    result = run(ONE, "1x1:v100", Greedy(), Overheads(on_preempt="lose_all", checkpoint_every_s=3), Faults(outages="0:7:8"))
    assert result.jobs["lost_work"][0] == 1


@pytest.mark.parametrize("change", [None, on(1)])
@pytest.mark.parametrize(("rule", "column"), [("forbidden", float("nan")), ("forbidden", 0.0), ("checkpoint", 0.0)])
def test_what_must_not_be_stopped_is_not(change: Grant | None, rule: str, column: float) -> None:
    script = Script({0: {0: on(0)}, 4: {0: change}})
    with pytest.raises(InfeasiblePlan, match=r"Script made an impossible plan at 4\.000 s for job 0 \(j0\): it must not be stopped or changed once it runs"):
        run(jobs((0, 1, 10), preemptible=[column]), "2x1:v100", script, Overheads(on_preempt=rule))


def test_a_job_of_its_own_will_may_be_stopped() -> None:
    script = Script({0: {0: on(0)}, 4: {0: None}, 5: {0: on(0)}})
    result = run(jobs((0, 1, 10), preemptible=[1.0]), "1x1:v100", script, Overheads(on_preempt="forbidden"))
    assert result.jobs["finish_s"][0] == 11


def test_an_outage_may_stop_what_no_plan_may() -> None:
    result = run(ONE, "1x1:v100", Greedy(), Overheads(on_preempt="forbidden"), Faults(outages="0:7:8"))
    assert result.jobs["evictions"][0] == 1


def test_checkpoints_take_time() -> None:
    # 9 s of progress, then 1 s of saving: rate 0.9, so 9 units take 10 s.
    result = run(jobs((0, 1, 9)), "1x1:v100", Greedy(), Overheads(checkpoint_every_s=9, checkpoint_s=1))
    assert result.jobs["finish_s"][0] == 10
    assert result.segments["rate"][0] == 0.9


@pytest.mark.parametrize(("outage", "lost"), [(9.5, 8.55), (10.5, 0.45)])
def test_saving_takes_part_in_the_period(outage: float, lost: float) -> None:
    # A period is 9 s of progress and 1 s of saving. At 9.5 nothing is saved yet: 9.5 x 0.9. At 10.5 half a second is unsaved.
    result = run(jobs((0, 1, 90)), "1x1:v100", Greedy(), Overheads(checkpoint_every_s=9, checkpoint_s=1), Faults(outages=f"0:{outage}:99"), horizon_s=50.0)
    assert result.jobs["lost_work"][0] == pytest.approx(lost)


def test_a_move_pauses_and_changes_the_rate() -> None:
    result = run(ONE, SLOW_FAST, Script({0: {0: on(0)}, 4: {0: on(1)}}), Overheads(restart_s=1))
    # 4 done at 4; pause to 5; 6 left at rate 2: 8.
    assert gantt(result) == ["j0 0-4 n0x1 changed", "j0 4-8 n1x1 pause 1 rate 2 finished"]
    assert result.jobs["preemptions"][0] == 1


def test_an_overlap_charges_both_and_runs_on() -> None:
    result = run(ONE, SLOW_FAST, Script({0: {0: on(0)}, 4: {0: on(1)}}), Overheads(restart_s=1, overlap_s=2))
    # Old rate until 6, then 1 s pause, then 4 left at rate 2: 9.
    assert gantt(result) == ["j0 0-4 n0x1 changed", "j0 4-6 n0x1 n1x1 changed", "j0 6-9 n1x1 pause 1 rate 2 finished"]
    assert result.jobs.loc[0, ["served_gpu_s", "held_s"]].tolist() == [4 + 2 * 2 + 3, 9]


def test_a_job_may_finish_while_holdings_overlap() -> None:
    result = run(ONE, SLOW_FAST, Script({0: {0: on(0)}, 9: {0: on(1)}}), Overheads(overlap_s=2))
    assert gantt(result) == ["j0 0-9 n0x1 changed", "j0 9-10 n0x1 n1x1 finished"]


@pytest.mark.parametrize("node", [0, 1])
def test_an_outage_within_an_overlap_costs_the_work_since_the_last_checkpoint(node: int) -> None:
    script = Script({0: {0: on(0)}, 4: {0: on(1)}})
    result = run(ONE, SLOW_FAST, script, Overheads(overlap_s=4, checkpoint_every_s=3), Faults(outages=f"{node}:5:99"), horizon_s=20.0)
    # Five seconds of progress, saved after 3.
    assert result.jobs["lost_work"][0] == 2
    assert gantt(result)[-1] == "j0 4-5 n0x1 n1x1 evicted"


def test_a_break_point_within_an_overlap_concerns_the_old_grant() -> None:
    def rate(job: int, grant: Grant, done: float, now_s: float) -> Rate:
        if grant.gangs[0].workers.nodes == (1,):
            return Rate(2.0)
        return Rate(1.0, until_work=5.0) if done < 5 else Rate(0.5)

    result = run(ONE, SLOW_FAST, Script({0: {0: on(0)}, 4: {0: on(1)}}), Overheads(overlap_s=2), perf=Bends(rate))
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
    assert lines == ["j0 0-4 n0x1 changed", "j0 4-5 n0x1 n1x1 changed", "j0 5-7 n1x1 n2x1 changed", "j0 7-10 n2x1 finished"]


def test_out_of_memory_at_a_break_point_evicts() -> None:
    def rate(job: int, grant: Grant, done: float, now_s: float) -> Rate:
        return Rate(1.0, until_work=6.0, then="oom") if grant == on(0) else Rate(1.0)

    script = Script({0: {0: on(0)}, 8: {0: on(1)}})
    result = run(ONE, "2x1:v100", script, Overheads(checkpoint_every_s=4), perf=Bends(rate))
    assert gantt(result) == ["j0 0-6 n0x1 evicted", "j0 8-14 n1x1 finished"]
    assert [call.delta.evicted for call in script.calls if call.delta.evicted] == [((0, "oom", "worker", 2.0),)]


def test_a_straggler_begins_at_an_instant_even_within_a_pause() -> None:
    def rate(job: int, grant: Grant, done: float, now_s: float) -> Rate:
        return Rate(1.0, until_s=3.0) if now_s < 3 else Rate(0.5)

    result = run(jobs((0, 1, 4)), "1x1:v100", Greedy(), Overheads(start_s=5), perf=Bends(rate))
    # The pause to 5 goes on across the instant 3; then 4 units at rate 0.5.
    assert gantt(result) == ["j0 0-3 n0x1 pause 3 changed", "j0 3-13 n0x1 pause 2 rate 0.5 finished"]


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
