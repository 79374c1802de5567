"""One run: who is asked when, what a plan may do, when a plan in flight is void, and how runs
end.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from allocators import make
from sim.cluster import Change, Cluster, NodeGroup
from sim.conditions import Measure
from sim.contract import Cadence, JobId, Needs, Plan, Spec, View
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.errors import ContractError, InfeasiblePlan, ParameterError
from sim.grants import Eviction, Grant
from sim.overheads import Overheads
from sim.perf.model import Rate
from sim.result import Progress
from sim.trace import Trace
from tests.sim.scripted import Bends, Greedy, Script, across, gantt, jobs, on, run

NEVER_ASKED = Cadence(on_arrival=False, on_finish=False, on_capacity=False)


@dataclass
class Turns(Greedy):
    """Lets another job have the only node every few seconds."""

    every_s: float = 10.0

    def allocate(self, view: View, /) -> Plan:
        running, waiting = view.running.ids.tolist(), view.waiting.ids.tolist()
        changes: dict[int, Grant | None] = dict.fromkeys(running) if waiting else {}
        return Plan(
            changes | ({waiting[0]: on(0)} if waiting else {}), wake_at_s=view.now_s + self.every_s
        )


class TestDecisions:
    def test_what_happens_at_one_instant_is_seen_in_one_decision(self) -> None:
        # At 10 job 0 finishes, jobs 1 and 2 arrive and node 1 fails.
        script = Script({0: {0: on(0)}, 10: {1: on(0)}, 20: {2: on(0)}})
        run(
            jobs((0, 1, 10), (10, 1, 10), (10, 1, 10)),
            "2x1:v100",
            script,
            faults=Faults(outages="1:10:99"),
        )
        call = script.calls[1]
        assert call.now_s == 10
        assert call.delta == ((1, 2), (0,), (), (1,), ())
        assert script.times == [0, 10, 20]

    def test_the_first_call_lists_all_that_wait(self) -> None:
        script = Script({0: {0: on(0), 1: on(1)}})
        run(jobs((0, 1, 5), (0, 1, 5)), "2x1:v100", script)
        assert script.calls[0].delta.arrived == (0, 1)
        assert script.calls[0].running == []

    def test_nobody_is_asked_when_the_last_job_is_settled(self) -> None:
        script = Script({0: {0: on(0)}})
        result = run(jobs((0, 1, 5)), "1x1:v100", script)
        assert script.times == [0]
        assert (result.end_s, result.reason) == (5, "drained")

    @pytest.mark.parametrize(
        ("cadence", "times"),
        [
            (Cadence(), [0, 3, 5, 6, 8]),
            (Cadence(on_arrival=False), [0, 5, 6, 8]),
            (Cadence(on_finish=False), [0, 3, 6, 8]),
            (Cadence(on_capacity=False), [0, 3, 5]),
            (Cadence(on_arrival=False, on_finish=False, on_capacity=False, every_s=4), [0, 4, 8]),
        ],
    )
    def test_the_cadence_says_when_to_ask(self, cadence: Cadence, times: list[float]) -> None:
        # Arrivals at 0 and 3, the first finish at 5, node 2 away from 6 to 8; the end is the second
        # finish at 9.
        trace, cluster = jobs((0, 1, 5), (3, 1, 6)), "3x1:v100"
        script = Script({0: {0: on(0)}, 3: {1: on(1)}}, cadence)
        if not cadence.on_arrival:
            script = Script(
                {0: Plan({0: on(0)}, wake_at_s=3.0), 3: {1: on(1)}},
                Cadence(True, cadence.on_finish, cadence.on_capacity, cadence.every_s),
            )
        run(trace, cluster, script, faults=Faults(outages="2:6:8"))
        asked = script.times if cadence.on_arrival else [at for at in script.times if at != 3]
        assert asked == times

    def test_ticks_come_only_while_somebody_is_there(self) -> None:
        script = Script(
            {0: {0: on(0)}, 20: {1: on(0)}}, Cadence(on_arrival=False, on_finish=False, every_s=4)
        )
        result = run(jobs((0, 1, 5), (17, 1, 2)), "1x1:v100", script)
        # 8 still tells of the finish at 5; 12 and 16 find an empty cluster.
        assert script.times == [0, 4, 8, 20]
        assert result.jobs["finish_s"].tolist() == [5, 22]

    def test_ticks_do_not_drift(self) -> None:
        script = Script({}, Cadence(on_arrival=False, on_finish=False, every_s=0.1))
        run(
            jobs((0, 1, 5)),
            "1x1:v100",
            Script({}, script.cadence) if False else script,
            horizon_s=1.05,
            stop="horizon",
            faults=Faults(outages="0:0:9"),
        )
        assert script.times == [tick / 10 for tick in range(11)]

    def test_the_notes_of_a_plan_are_kept_with_its_decision(self) -> None:
        result = run(
            jobs((0, 1, 5), (1, 1, 5)),
            "2x1:v100",
            Script({0: {0: on(0)}, 1: Plan({1: on(1)}, notes={"gap": 0.5})}),
        )
        assert result.notes.to_dict("records") == [{"decision": 1, "name": "gap", "value": 0.5}]
        assert result.decisions.to_dict("records")[1] == {
            "t": 1.0,
            "changed": 1,
            "waiting": 0,
            "running": 2,
        }

    def test_progress_is_told_every_few_hundred_decisions(self) -> None:
        told: list[Progress] = []
        trace = jobs(*[(at, 1, 0.5) for at in range(200)])
        Simulator(trace, Cluster.parse("1x1:v100"), Greedy(), progress=told.append).run()
        # Decisions 1, 3, 5 … are arrivals; number 256 follows the 128th finish, at 127.5 s.
        assert told == [Progress(128, 200, 127.5, 199.0)]

    def test_an_unknown_need_is_named(self) -> None:
        with pytest.raises(ContractError, match="unknown needs: magic, rack, spells"):
            Needs(frozenset({"spells"}), frozenset({"magic"}), "rack")


class TestWakeUps:
    def test_a_later_plan_replaces_the_wake_up(self) -> None:
        script = Greedy(Cadence())
        asked: list[float] = []

        def allocate(view: View) -> Plan:
            asked.append(view.now_s)
            return Plan(
                {0: on(0)} if view.now_s == 0 else {},
                wake_at_s={0.0: 4.0, 2.0: 7.0}.get(view.now_s, inf),
            )

        script.allocate = allocate  # type: ignore[method-assign]
        run(jobs((0, 1, 10), (2, 1, 1)), "1x1:v100", script, horizon_s=20.0)
        # 4 was replaced by 7 at 2; at 7 there is none any more; 10 is the finish.
        assert asked == [0, 2, 7, 10]

    def test_a_plan_without_a_wake_up_takes_the_previous_one_back(self) -> None:
        asked: list[float] = []
        script = Greedy()

        def allocate(view: View) -> Plan:
            asked.append(view.now_s)
            return Plan({0: on(0)}, wake_at_s=4.0) if view.now_s == 0 else Plan()

        script.allocate = allocate  # type: ignore[method-assign]
        run(jobs((0, 1, 10), (2, 1, 1)), "1x1:v100", script, horizon_s=20.0)
        assert asked == [0, 2, 10]

    def test_nobody_is_woken_earlier_than_the_next_instant(self) -> None:
        asked: list[float] = []
        script = Greedy()

        def allocate(view: View) -> Plan:
            asked.append(view.now_s)
            return Plan(
                {0: on(0)} if view.now_s == 0 else {}, wake_at_s=-5.0 if len(asked) < 4 else inf
            )

        script.allocate = allocate  # type: ignore[method-assign]
        run(jobs((0, 1, 1)), "1x1:v100", script)
        assert asked == [0, 1e-6, 2e-6, 3e-6]

    def test_the_same_wake_up_twice_is_one(self) -> None:
        asked: list[float] = []
        script = Greedy()

        def allocate(view: View) -> Plan:
            asked.append(view.now_s)
            return Plan(
                {0: on(0)} if view.now_s == 0 else {}, wake_at_s=6.0 if view.now_s < 6 else inf
            )

        script.allocate = allocate  # type: ignore[method-assign]
        run(jobs((0, 1, 10), (2, 1, 1)), "1x1:v100", script, horizon_s=11.0)
        assert asked == [0, 2, 6, 10]


class TestPlans:
    @pytest.mark.parametrize(
        ("plan", "what"),
        [
            ({0: on(0, 2)}, r"node 0: 2 GPUs asked, 1 free"),
            ({0: on(7)}, r"there is no node 7"),
            ({0: None}, r"it is to be stopped but does not run"),
            ({5: on(0)}, r"for job 5, which does not exist: it is neither waiting nor running"),
            ({-1: on(0)}, r"for job -1, which does not exist"),
            ({1: on(0)}, r"for job 1 \(j1\): it is neither waiting nor running"),
            ({0: Grant(())}, r"the grant has no gang"),
            ({0: across({0: 1, 1: 1})}, r"job 0 asked for 1 GPUs and cannot run on 2"),
            (Plan(refuse=frozenset({1})), r"for job 1 \(j1\): it is refused but not waiting"),
            (
                Plan({0: on(0)}, refuse=frozenset({0})),
                r"for job 0 \(j0\): it is neither waiting nor running",
            ),
        ],
    )
    @pytest.mark.parametrize("latency_s", [0.0, 1.0])
    def test_an_impossible_plan_names_who_when_and_what(
        self, plan: Plan, what: str, latency_s: float
    ) -> None:
        with pytest.raises(InfeasiblePlan, match=what) as caught:
            run(
                jobs((0, 1, 5), (9, 1, 5)),
                "2x1:v100",
                Script({0: plan}),
                Overheads(latency_s=latency_s),
            )
        assert str(caught.value).startswith(
            f"Script made an impossible plan at {latency_s:.3f} s for job"
        )
        assert str(caught.value).endswith("The run was stopped.")
        assert caught.value.snapshot["now_s"] == 0.0
        assert caught.value.snapshot["waiting"] == [0]

    def test_releases_come_first(self) -> None:
        # Jobs 0 and 1 change places on a full cluster, and job 2 takes the GPU of job 3.
        trace = jobs((0, 1, 10), (0, 1, 10), (0, 1, 10), (0, 1, 10))
        script = Script(
            {
                0: {0: on(0), 1: on(1), 3: on(2)},
                4: {2: on(2), 0: on(1), 1: on(0), 3: None},
                14: {3: on(0)},
            }
        )
        result = run(trace, "3x1:v100", script)
        assert result.jobs["finish_s"].tolist() == [10, 10, 14, 20]
        assert result.jobs["preemptions"].tolist() == [1, 1, 0, 1]

    def test_a_job_that_is_refused_after_it_has_run_has_failed(self) -> None:
        script = Script({0: {0: on(0)}, 4: {0: None}, 6: Plan(refuse=frozenset({0}))})
        assert run(jobs((0, 1, 10)), "1x1:v100", script).jobs["outcome"].tolist() == ["failed"]

    @pytest.mark.parametrize(("at_s", "outcome"), [(8, "failed"), (9.5, "completed")])
    def test_a_job_that_is_done_before_its_end_arrives_is_done(
        self, at_s: float, outcome: str
    ) -> None:
        # Everything arrives 1 s later: it runs from 1 to 10.
        steps = {0: Plan({0: on(0)}), at_s: Plan(ended=frozenset({0}))}
        result = run(jobs((0, 1, 9)), "1x1:v100", Script(steps), Overheads(latency_s=1))
        assert result.jobs["outcome"].tolist() == [outcome]

    def test_refused_jobs_never_run_and_are_settled(self) -> None:
        script = Script({0: Plan({0: on(0)}, refuse=frozenset({1}))})
        result = run(jobs((0, 1, 5), (0, 1, 5)), "2x1:v100", script)
        assert result.jobs["outcome"].tolist() == ["completed", "refused"]
        assert result.reason == "drained"

    def test_jobs_that_never_fit_are_impossible_at_once_and_never_shown(self) -> None:
        script = Script({0: {0: on(0)}})
        result = run(jobs((0, 1, 5), (0, 3, 5), (1, 9, 5)), "2x1:v100", script)
        assert result.jobs["outcome"].tolist() == ["completed", "impossible", "impossible"]
        assert script.calls[0].waiting == [0]
        assert script.times == [0]

    def test_only_impossible_jobs_end_the_run_at_the_last_submission(self) -> None:
        result = run(jobs((0, 3, 5), (4, 9, 5)), "1x1:v100", Greedy())
        assert (result.end_s, result.reason, len(result.decisions)) == (4, "drained", 0)

    def test_an_overflow_node_takes_what_the_cluster_cannot(self) -> None:
        script = Script({0: {0: on(1, 9), 1: on(0)}}, needs=Needs(requires=frozenset({"overflow"})))
        result = run(jobs((0, 9, 5), (0, 1, 5)), "1x1:v100", script)
        assert result.overflow == 1
        assert result.jobs["outcome"].tolist() == ["completed", "completed"]
        assert gantt(result) == ["j0 0-5 n1x9 finished", "j1 0-5 n0x1 finished"]

    def test_without_the_need_there_is_no_overflow_node(self) -> None:
        with pytest.raises(InfeasiblePlan, match="there is no node 1"):
            run(jobs((0, 1, 5)), "1x1:v100", Script({0: {0: on(1)}}))

    def test_plain_reads_of_undeclared_things_say_so(self) -> None:
        def peek(view: View) -> Plan:
            return Plan(notes={"left": view.one("remaining_work", 0)})

        with pytest.raises(
            ContractError,
            match=r"reads 'remaining_work' but does not declare 'remaining_work' in needs\.reads",
        ):
            run(jobs((0, 1, 5)), "1x1:v100", Script({0: peek}))


class TestLatency:
    def test_a_plan_lands_later_and_nobody_is_asked_meanwhile(self) -> None:
        script = Script({0: {0: on(0)}, 3: {1: on(1)}})
        result = run(
            jobs((0, 1, 5), (1, 1, 5)),
            "2x1:v100",
            script,
            Overheads(latency_s=2, latency_per_job_s=1),
        )
        # At 0 one job is active: 3 s. The arrival at 1 is heard of at 3; then two are active: 4 s.
        assert script.times[:2] == [0, 3]
        assert result.jobs["first_start_s"].tolist() == [3, 7]

    def test_an_entry_of_a_job_that_left_meanwhile_is_void(self) -> None:
        script = Script({0: {0: on(0)}, 4.5: {0: None, 1: on(1)}, 9: {}})
        result = run(jobs((0, 1, 5), (4.5, 1, 5)), "2x1:v100", script, Overheads(latency_s=1))
        # Job 0 runs from 1 to 6. The plan of 4.5 lands at 5.5: not void. Job 0 waits with 0.5 s
        # left and starts no more.
        assert (result.voided, result.jobs["finish_s"].tolist()[1]) == (0, 10.5)
        script = Script({0: {0: on(0)}, 5.5: {0: None, 1: on(1)}})
        result = run(jobs((0, 1, 5), (5.5, 1, 5)), "2x1:v100", script, Overheads(latency_s=1))
        # This one lands at 6.5, after job 0 has finished at 6.
        assert (result.voided, result.jobs["finish_s"].tolist()) == (1, [6, 11.5])

    def test_a_plan_that_lands_when_a_job_finishes_finds_it_finished(self) -> None:
        script = Script({0: {0: on(0)}, 5: {0: None, 1: on(1)}})
        result = run(jobs((0, 1, 5), (5, 1, 5)), "2x1:v100", script, Overheads(latency_s=1))
        assert (result.voided, result.jobs["finish_s"].tolist()) == (1, [6, 11])

    @pytest.mark.parametrize("outage", ["1:2:20", "1:2:3", "1:3:20"])
    def test_an_entry_whose_node_came_or_went_is_void_and_the_start_is_told(
        self, outage: str
    ) -> None:
        # Sent at 0, lands at 3; node 1 goes at 2 or just then, or is even back.
        script = Script({0: {0: on(0), 1: on(1)}})
        result = run(
            jobs((0, 1, 5), (0, 1, 5)),
            "2x1:v100",
            script,
            Overheads(latency_s=3),
            Faults(outages=outage),
            horizon_s=30.0,
        )
        assert result.voided == 1
        assert script.calls[1].now_s == 3
        assert script.calls[1].delta.evicted == (Eviction(1, "void", "worker", 0.0),)
        assert result.jobs["evictions"].tolist() == [0, 0]
        assert result.jobs["outcome"].tolist() == ["completed", "unfinished"]

    def test_a_move_onto_room_reserved_on_the_sketch_gives_the_old_room_back(self) -> None:
        # The sketch takes node 1 for a job that holds node 0, which is free again afterwards.
        def moves(view: View) -> Plan:
            view.room.take(there)
            return Plan({0: there})

        def looks(view: View) -> Plan:
            free.extend(view.room.free)
            return Plan({})

        there, free = on(1), list[int]()
        run(
            jobs((0, 1, 10)),
            "2x1:v100",
            Script({0: {0: on(0)}, 2: moves, 4: looks}, seamless=False),
        )
        assert free == [1]

    def test_a_void_move_leaves_its_old_room_taken_and_voids_who_counted_on_it(self) -> None:
        # Job 0 shall move from node 0 to node 1, job 1 into its place; node 1 goes while the plan
        # is in flight.
        script = Script({0: {0: on(0)}, 4: {0: on(1), 1: on(0)}})
        result = run(
            jobs((0, 1, 9), (4, 1, 5)),
            "2x1:v100",
            script,
            Overheads(latency_s=2),
            Faults(outages="1:5:99"),
            horizon_s=30.0,
        )
        assert result.voided == 2
        assert gantt(result) == ["j0 2-11 n0x1 finished"]
        assert script.calls[2].delta.evicted == (Eviction(1, "void", "worker", 0.0),)

    def test_a_void_move_of_a_job_that_was_evicted_is_not_told_as_a_start(self) -> None:
        # Job 0 shall move from 4 to 6; its node goes at 5, so it waits when the plan lands.
        script = Script({0: {0: on(0)}, 4: {0: on(1)}, 7: {0: on(1)}})
        result = run(
            jobs((0, 1, 9)),
            "2x1:v100",
            script,
            Overheads(latency_s=2),
            Faults(outages="0:5:99"),
        )
        told = [(call.now_s, one.cause) for call in script.calls for one in call.delta.evicted]
        assert told == [(6, "outage")]
        assert (result.voided, result.jobs["first_start_s"][0]) == (1, 2)

    def test_a_break_point_in_flight_makes_nothing_void(self) -> None:
        def rate(job: int, grant: Grant, done: float, now_s: float) -> Rate:
            return Rate(1.0, until_work=4.0) if done < 4 else Rate(2.0)

        script = Script({0: {0: on(0)}, 5: {0: on(1)}})
        result = run(jobs((0, 1, 12)), "2x1:v100", script, Overheads(latency_s=2), perf=Bends(rate))
        # Starts at 2, bends at 6, moves at 7 with 4 + 2 done; 6 left at rate 2.
        assert (result.voided, result.jobs["finish_s"][0]) == (0, 10)

    def test_an_allocator_without_interest_in_finishes_is_not_asked_after_a_void(self) -> None:
        script = Script({0: {0: on(0)}}, Cadence(on_finish=False, on_capacity=False))
        result = run(
            jobs((0, 1, 5)), "1x1:v100", script, Overheads(latency_s=3), Faults(outages="0:2:9")
        )
        assert script.times == [0]
        assert "can never start" in result.reason

    def test_a_wake_up_in_flight_is_answered_after_landing(self) -> None:
        script = Script({0: Plan({0: on(0)}, wake_at_s=1.0)})
        run(jobs((0, 1, 5)), "1x1:v100", script, Overheads(latency_s=3))
        assert script.times == [0, 3]


class TestEndings:
    @pytest.mark.parametrize("cadence", [Cadence(), Cadence(every_s=7.0)])
    def test_a_run_that_is_stuck_ends_and_says_so(self, cadence: Cadence) -> None:
        result = run(jobs((0, 1, 5), (2, 1, 5)), "1x1:v100", Script({0: {0: on(0)}}, cadence))
        assert (
            result.reason
            == "1 of the jobs can never start: nothing runs, nothing is to come, and the allocator"
            " leaves them waiting"
        )
        assert result.remarks == (f"{result.reason}.",)
        assert result.jobs["outcome"].tolist() == ["completed", "unfinished"]
        assert result.end_s == (5 if cadence.every_s == inf else 14)

    def test_a_run_of_which_nobody_is_asked_says_so(self) -> None:
        result = run(jobs((0, 1, 5), (2, 1, 5)), "1x1:v100", Script({}, NEVER_ASKED))
        assert "2 of the jobs can never start" in result.reason

    def test_jobs_that_only_take_turns_to_pause_end_the_run(self) -> None:
        # Turns of 10 s. With pauses of 10 s nobody does any work; with 9 s everybody does 1 s in a
        # turn.
        result = run(
            jobs((0, 1, 15), (0, 1, 15)), "1x1:v100", Turns(), Overheads(start_s=10, restart_s=10)
        )
        assert result.reason.startswith(
            "2 of the jobs will never be done: again and again they get no further"
        )
        assert result.jobs["outcome"].tolist() == ["unfinished", "unfinished"]
        result = run(
            jobs((0, 1, 15), (0, 1, 15)), "1x1:v100", Turns(), Overheads(start_s=9, restart_s=9)
        )
        assert (result.reason, result.remarks) == ("drained", ())

    def test_turns_of_a_millisecond_without_work_end_soon(self) -> None:
        # 14,000 s of work: three times that in turns of 1 ms would be 42 million of them.
        two, costly = jobs((0, 1, 7000), (0, 1, 7000)), Overheads(start_s=60, restart_s=60)
        result = run(two, "1x1:v100", Turns(every_s=1e-3), costly)
        assert result.reason.startswith("2 of the jobs will never be done")
        assert 2_000 < len(result.decisions) < 3_000

    def test_turns_without_work_go_on_while_the_cluster_is_to_change(self) -> None:
        # The other node comes back at 40: until then 40,000 turns, and as before after it.
        two, costly = jobs((0, 1, 20), (0, 1, 20)), Overheads(start_s=60, restart_s=60)
        result = run(two, "2x1:v100", Turns(every_s=1e-3), costly, faults=Faults(outages="1:0:40"))
        assert result.reason.startswith("2 of the jobs will never be done")
        assert 40 < result.end_s < 41

    @pytest.mark.parametrize(
        ("trace", "allocator", "conditions"),
        [
            (
                jobs((0, 1, 5000), (0, 1, 5000)),
                "gavel",
                {"overheads": Overheads(restart_s=360, start_s=360)},
            ),
            (
                jobs((0, 1, 5000), (0, 1, 5000), (0, 1, 5000)),
                "gavel",
                {"overheads": Overheads(on_preempt="lose_all")},
            ),
            (
                jobs((0, 1, 3000), (0, 1, 3000)),
                "las:thresholds=5,promote_factor=0.2",
                {"overheads": Overheads(restart_s=3000)},
            ),
            (
                jobs((0, 1, 5), (0, 1, 5)),
                Greedy(Cadence(every_s=60.0)),
                {"perf": Bends(lambda job, *_: Rate(float(job)))},
            ),
            (
                jobs((0, 1, 5)),
                Greedy(),
                {"perf": Bends(lambda job, grant, done, now_s: Rate(0.0, until_s=now_s + 1))},
            ),
        ],
        ids=["gavel", "lose all", "las", "no speed", "no speed, asked again and again"],
    )
    def test_runs_without_end_are_ended(
        self, trace: Trace, allocator: Any, conditions: dict[str, Any]
    ) -> None:
        result = run(
            trace,
            "1x1:v100",
            make(Spec.parse(allocator)) if isinstance(allocator, str) else allocator,
            **conditions,
        )
        assert "will never be done" in result.reason
        assert result.remarks[0] == f"{result.reason}."
        assert result.jobs["outcome"].iloc[0] == "unfinished"

    def test_a_run_that_comes_closer_to_its_end_goes_on_however_slowly(self) -> None:
        # A second of work in an hour, and nobody done for half a million decisions.
        result = run(
            jobs((0, 1, 7000), (0, 1, 7000)),
            "1x1:v100",
            Turns(every_s=3600.0),
            Overheads(start_s=3599, restart_s=3599),
        )
        assert result.reason == "drained"
        assert len(result.decisions) > 13_900

    def test_what_is_still_to_come_is_waited_for(self) -> None:
        def late(job: JobId, grant: Grant, done: float, now_s: float) -> Rate:
            return Rate(1.0) if now_s >= 500_000 else Rate(0.0, until_s=500_000.0)

        cluster = Cluster(
            (NodeGroup(2, 1, "v100"),),
            changes=(Change(0, (0,), False), Change(500_000, (0,), True)),
        )
        result = run(jobs((0, 1, 5)), "1x1:v100", Greedy(Cadence(every_s=10.0)), perf=Bends(late))
        assert (result.reason, result.jobs["finish_s"][0]) == ("drained", 500_005)
        dead = Bends(lambda job, grant, done, now_s: Rate(float(job)))
        result = run(jobs((0, 1, 5), (0, 1, 5)), cluster, Greedy(Cadence(every_s=10.0)), perf=dead)
        assert result.jobs["finish_s"][1] == 500_005

    def test_jobs_without_speed_end_the_run_when_nothing_is_to_come(self) -> None:
        result = run(
            jobs((0, 1, 5), (0, 1, 5)),
            "2x1:v100",
            Greedy(),
            perf=Bends(lambda job, *_: Rate(float(job))),
        )
        assert (
            result.reason
            == "1 of the jobs run at a speed of 0, and nothing is to come that would change that"
        )
        assert result.jobs["outcome"].tolist() == ["unfinished", "completed"]

    def test_long_pauses_are_no_standstill(self) -> None:
        # Asked every second while a job pauses for a day.
        result = run(
            jobs((0, 1, 5)), "1x1:v100", Greedy(Cadence(every_s=1.0)), Overheads(start_s=86_400)
        )
        assert (result.reason, result.jobs["finish_s"][0]) == ("drained", 86_405)

    def test_nobody_gives_up_while_a_node_is_to_come_back(self) -> None:
        cluster = Cluster(
            (NodeGroup(1, 1, "v100"),), changes=(Change(0, (0,), False), Change(1000, (0,), True))
        )
        for cadence in (Cadence(), Cadence(every_s=9.0)):
            assert run(jobs((0, 1, 5)), cluster, Greedy(cadence)).jobs["finish_s"][0] == 1005
            assert (
                run(
                    jobs((0, 1, 5)), "1x1:v100", Greedy(cadence), faults=Faults(outages="0:0:1000")
                ).jobs["finish_s"][0]
                == 1005
            )

    def test_nodes_that_come_and_go_between_ticks_are_no_reason_to_give_up(self) -> None:
        # Down at 0 and at 2, back at 1 and at 3: nothing was tried in between, and at the next tick
        # the job starts.
        result = run(
            jobs((0, 1, 5)),
            "1x1:v100",
            Greedy(Cadence(False, False, False, every_s=9.0)),
            faults=Faults(outages="0:0:1;0:2:3"),
        )
        assert (result.reason, result.jobs["finish_s"][0]) == ("drained", 14)

    def test_nobody_gives_up_before_a_wake_up(self) -> None:
        assert (
            run(jobs((0, 1, 5)), "1x1:v100", Script({500: {0: on(0)}})).jobs["finish_s"][0] == 505
        )

    def test_the_horizon_cuts(self) -> None:
        result = run(
            jobs((0, 1, 5), (1, 1, 5), (8, 1, 5)),
            "1x1:v100",
            Script({0: {0: on(0)}, 5: {1: on(0)}}),
            horizon_s=7.0,
        )
        assert (result.end_s, result.reason) == (7, "horizon")
        assert result.jobs["outcome"].tolist() == ["completed", "unfinished", "unfinished"]
        assert gantt(result) == ["j0 0-5 n0x1 finished", "j1 5-7 n0x1 open"]
        assert result.jobs["served_gpu_s"].tolist() == [5, 2, 0]

    def test_a_job_that_finishes_at_the_horizon_is_completed(self) -> None:
        result = run(jobs((0, 1, 5), (1, 1, 5)), "2x1:v100", Greedy(), horizon_s=5.0)
        assert result.jobs["outcome"].tolist() == ["completed", "unfinished"]

    @pytest.mark.parametrize(
        ("stop", "end_s", "reason"), [("drained", 5, "drained"), ("horizon", 50, "horizon")]
    )
    def test_all_settled_before_the_horizon(self, stop: str, end_s: float, reason: str) -> None:
        result = run(jobs((0, 1, 5)), "1x1:v100", Greedy(), horizon_s=50.0, stop=stop)
        assert (result.end_s, result.reason) == (end_s, reason)

    @pytest.mark.parametrize(
        "measure", [Measure(from_s=1, to_s=2), Measure(first_job=1, last_job=1)]
    )
    def test_measured_ends_when_those_that_count_are_settled(self, measure: Measure) -> None:
        result = run(
            jobs((0, 1, 50), (1, 1, 5), (3, 1, 5), (3, 1, 2)),
            "4x1:v100",
            Greedy(),
            measure=measure,
            stop="measured",
        )
        # The last job is settled at 5, but does not count.
        assert (result.end_s, result.reason) == (6, "measured")
        assert result.jobs["outcome"].tolist() == [
            "unfinished",
            "completed",
            "unfinished",
            "completed",
        ]

    @pytest.mark.parametrize(
        ("wrong", "sentence"),
        [
            ({"stop": "horizon"}, "no horizon is set"),
            ({"stop": "someday"}, "someday"),
            ({"horizon_s": 0.0}, "horizon_s"),
            ({"horizon_s": -5.0}, "horizon_s"),
            ({"horizon_s": nan}, "horizon_s"),
            ({"stop": "measured", "measure": Measure(from_s=100)}, "no job"),
        ],
    )
    def test_conditions_that_cannot_end_well_are_refused(
        self, wrong: dict[str, object], sentence: str
    ) -> None:
        with pytest.raises(ParameterError, match=sentence):
            run(jobs((0, 1, 5)), "1x1:v100", Greedy(Cadence(every_s=5)), **wrong)


class TestEdges:
    def test_one_job(self) -> None:
        result = run(jobs((77, 1, 5)), "1x1:v100", Greedy())
        assert gantt(result) == ["j0 0-5 n0x1 finished"]

    def test_all_at_once(self) -> None:
        result = run(jobs(*[(0, 1, 3)] * 4), "2x1:v100", Greedy())
        assert result.jobs["finish_s"].tolist() == [3, 3, 6, 6]
        assert result.decisions["t"].tolist() == [0, 3]

    def test_a_job_that_finishes_when_its_node_fails_has_finished(self) -> None:
        result = run(
            jobs((0, 1, 5), (0, 1, 9)), "2x1:v100", Greedy(), faults=Faults(outages="0:5:6")
        )
        assert result.jobs["outcome"].tolist() == ["completed", "completed"]
        assert result.jobs["evictions"].tolist() == [0, 0]

    def test_an_outage_of_an_empty_node_evicts_nobody(self) -> None:
        result = run(
            jobs((0, 1, 5)), "2x1:v100", Script({0: {0: on(0)}}), faults=Faults(outages="1:1:2")
        )
        assert result.outages.to_dict("records") == [
            {"node": 1, "t0": 1.0, "t1": 2.0, "cause": "outage"}
        ]
        assert result.jobs["finish_s"][0] == 5

    def test_an_outage_of_two_nodes_evicts_a_gang_once(self) -> None:
        script = Script({0: {0: across({0: 1, 1: 1})}, 6: {0: across({0: 1, 1: 1})}})
        result = run(
            jobs((0, 2, 5)),
            "2x1:v100",
            script,
            Overheads(checkpoint_every_s=0),
            Faults(outages="0:2:4;1:2:6"),
        )
        assert result.jobs.loc[0, ["evictions", "lost_work", "finish_s"]].tolist() == [1, 2, 11]

    @pytest.mark.parametrize("seed", range(6))
    def test_the_order_in_which_simultaneous_events_were_made_is_without_consequence(
        self, seed: int
    ) -> None:
        # At 6 three jobs finish, two arrive, one node fails, one returns. The jobs start in any
        # order.
        order = np.random.default_rng(seed).permutation(3).tolist()
        script = Script({0: {job: on(job) for job in order}, 6: {3: on(1), 4: on(3)}})
        cluster = Cluster(
            (NodeGroup(4, 1, "v100"),), changes=(Change(0, (3,), False), Change(6, (3,), True))
        )
        result = run(
            jobs((0, 1, 6), (0, 1, 6), (0, 1, 6), (6, 1, 5), (6, 1, 5)),
            cluster,
            script,
            faults=Faults(outages="0:6:9"),
        )
        assert sorted(script.calls[1].delta.finished) == [0, 1, 2]
        assert script.calls[1].delta.arrived == (3, 4)
        assert sorted(script.calls[1].delta.nodes) == [0, 3]
        assert result.jobs["finish_s"].tolist() == [6, 6, 6, 11, 11]
        assert script.times == [0, 6, 9]

    def test_instants_that_are_no_round_numbers_still_coincide(self) -> None:
        # 0.1 + 0.2 is not 0.3: the node must return at 0.3 itself, when the job arrives.
        script = Script({0: {0: on(1)}, 0.3: {1: on(0)}})
        for cluster, faults in (
            (
                Cluster(
                    (NodeGroup(2, 1, "v100"),),
                    changes=(Change(0.1, (0,), False), Change(0.3, (0,), True)),
                ),
                Faults(),
            ),
            (Cluster.parse("2x1:v100"), Faults(outages="0:0.1:0.3")),
        ):
            result = run(jobs((0, 1, 5), (0.3, 1, 5)), cluster, script, faults=faults)
            assert result.outages["t1"].tolist() == [0.3]
            assert result.jobs["first_start_s"].tolist() == [0, 0.3]

    def test_cpu_jobs_on_a_cpu_cluster(self) -> None:
        # Six cores: 4 + 2.5 do not fit together; a job that names no cores takes one.
        trace = jobs((0, 0, 5), (0, 0, 5), (0, 0, 7), cpus=[4, 2.5, nan])
        result = run(trace, "1x0:cpu/6c", Greedy())
        assert result.jobs["finish_s"].tolist() == [5, 10, 7]
        assert result.jobs["served_gpu_s"].tolist() == [0, 0, 0]

    def test_the_collector_is_switched_on_again(self) -> None:
        gc.enable()
        run(jobs((0, 1, 5)), "1x1:v100", Greedy())
        assert gc.isenabled()
        gc.disable()
        try:
            run(jobs((0, 1, 5)), "1x1:v100", Greedy())
            assert not gc.isenabled()
        finally:
            gc.enable()

    def test_conditions_are_plain_by_default(self) -> None:
        conditions = Conditions()
        assert (conditions.seed, conditions.horizon_s, conditions.stop) == (0, inf, "drained")


class TestHopelessRuns:
    def test_failures_faster_than_checkpoints_end_with_a_sentence(self) -> None:
        with pytest.raises(
            ParameterError, match=r"Job j0 lost its nodes 10,001 times .* Raise mtbf_h"
        ):
            run(
                jobs((0, 1, 1e6)),
                "1x1:v100",
                Greedy(),
                overheads=Overheads(checkpoint_every_s=0),
                faults=Faults(mtbf_h=0.001, mttr_h=0.001),
            )

    def test_confinement_by_two_things_is_refused(self) -> None:
        with pytest.raises(ContractError, match="Choose one of them"):
            _ = Needs(confine_by="vc") | Needs(confine_by="partition")
