"""What breaks, when, and that it is the same for everybody."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Change, Cluster, NodeGroup
from sim.contract import Cadence
from sim.engine.faults import Faults
from sim.engine.give_up import ROOMLESS, STUCK
from sim.errors import ParameterError
from sim.overheads import Overheads
from tests.sim.scripted import Greedy, Script, across, gantt, jobs, on, run

TWO = Cluster.parse("2x1:v100")


def outages(result: Any) -> list[tuple[int, float, float, str]]:
    return [tuple(row) for row in result.outages.itertuples(index=False)]


class TestGiven:
    def test_a_list_is_read_and_sorted(self) -> None:
        assert Faults(outages=" 1:5:9 ; 0:1:2;;0:5:8").known_outages(TWO) == [
            (0, 1, 2),
            (0, 5, 8),
            (1, 5, 9),
        ]
        assert Faults().known_outages(TWO) == []

    @pytest.mark.parametrize("entry", ["1", "1:2", "a:1:2", "1:x:2", "1:1:"])
    def test_another_form_is_quoted(self, entry: str) -> None:
        with pytest.raises(
            ParameterError, match=f"outage '{entry}' is not of the form node:from_s:to_s"
        ):
            Faults(outages=f"0:1:2;{entry}").known_outages(TWO)

    @pytest.mark.parametrize(
        "entry", ["2:1:2", "-1:1:2", "0:2:2", "0:3:2", "0:-1:2", "0:1:2:3", "0:nan:2", "0:1:nan"]
    )
    def test_other_figures_are_quoted(self, entry: str) -> None:
        with pytest.raises(
            ParameterError,
            match=f"outage '{entry}' must name a node from 0 to 1 and times that grow",
        ):
            Faults(outages=entry).known_outages(TWO)

    def test_a_bad_list_stops_the_run_before_it_begins(self) -> None:
        with pytest.raises(ParameterError, match="must name a node from 0 to 1"):
            run(jobs((0, 1, 1)), TWO, Greedy(), faults=Faults(outages="7:1:2"))

    def test_overlapping_outages_of_a_node_are_one(self) -> None:
        result = run(
            jobs((0, 1, 50)),
            TWO,
            Script({0: {0: on(1)}}),
            faults=Faults(outages="0:2:5;0:4:9;0:9:10"),
        )
        # 2-5 and 4-9 are one; at 9 the node returns and goes again at the same instant, in
        # whichever order.
        merged = outages(result)
        assert merged in ([(0, 2, 10, "outage")], [(0, 2, 9, "outage"), (0, 9, 10, "outage")])

    def test_an_outage_that_never_ends(self) -> None:
        result = run(
            jobs((0, 1, 50)), TWO, Script({0: {0: on(1)}}), faults=Faults(outages="0:2:inf")
        )
        assert np.isnan(outages(result)[0][2])


class TestForGood:
    """Nodes that never come back: waiting for them ends."""

    @pytest.mark.parametrize("mtbf_h", [0, 50])
    def test_the_only_node(self, mtbf_h: float) -> None:
        faults = Faults(outages="0:2000:inf", mtbf_h=mtbf_h)
        result = run(jobs((0, 1, 5000)), "1x1:v100", Greedy(), faults=faults)
        assert result.end_s == 2000
        assert result.reason == STUCK.format(1)
        assert result.jobs["held_s"].tolist() == [2000]
        assert [row[:2] for row in outages(result)] == [(0, 2000)]

    @pytest.mark.parametrize(
        "cadence", [Cadence(), Cadence(on_capacity=False), Cadence(every_s=600, on_capacity=False)]
    )
    def test_who_is_being_repaired_then(self, cadence: Cadence) -> None:
        # With seed 0 it fails at 8897 s and is being repaired when it is lost for good: that is no
        # event for the allocator, nor is the end of the repair.
        faults = Faults(outages="0:20000:inf", mtbf_h=1, mttr_h=100)
        result = run(jobs((0, 1, 50_000)), "1x1:v100", Greedy(cadence), faults=faults)
        assert result.reason == STUCK.format(1)
        assert (
            result.segments["t1"].tolist()
            == result.outages["t0"].tolist()
            == [pytest.approx(8896.5, abs=0.1)]
        )
        assert result.end_s < 1e6

    @pytest.mark.parametrize("at_s", [-1, 20_000])
    def test_a_dated_removal(self, at_s: float) -> None:
        cluster = Cluster((NodeGroup(2, 1, "v100"),), changes=(Change(at_s, (0, 1), False),))
        result = run(jobs((0, 1, 50_000)), cluster, Greedy(), faults=Faults(mtbf_h=1))
        assert result.reason == STUCK.format(1)
        assert result.end_s < 1e6

    def test_a_dated_return_is_waited_for_and_the_node_fails_again(self) -> None:
        cluster = Cluster(
            (NodeGroup(1, 1, "v100"),),
            changes=(Change(20_000, (0,), False), Change(90_000, (0,), True)),
        )
        result = run(
            jobs((0, 1, 50_000)),
            cluster,
            Greedy(),
            Overheads(checkpoint_every_s=600),
            Faults(mtbf_h=2, mttr_h=0.1),
        )
        assert result.jobs["outcome"].tolist() == ["completed"]
        assert result.outages["t0"].max() > 90_000

    def test_others_that_fail_and_return_for_ever(self) -> None:
        # One of 20 is lost; of the others most are always being repaired.
        faults = Faults(outages="0:0:inf", mtbf_h=1, mttr_h=10)
        result = run(jobs((0, 1, 1), (100_000, 20, 5)), "20x1:v100", Greedy(), faults=faults)
        assert result.jobs["outcome"].tolist() == ["completed", "unfinished"]
        assert result.reason == ROOMLESS.format(1)
        assert result.remarks == (f"{ROOMLESS.format(1)}.",)


class TestDated:
    def cluster(self, *changes: Change) -> Cluster:
        return Cluster((NodeGroup(2, 1, "v100"),), changes=changes)

    def test_a_node_that_is_absent_at_the_start(self) -> None:
        script = Script({0: {0: on(1)}, 10: {1: on(0)}})
        result = run(
            jobs((0, 1, 20), (0, 1, 20)),
            self.cluster(Change(0, (0,), False), Change(10, (0,), True)),
            script,
        )
        assert script.calls[0].delta.nodes == (0,)
        assert outages(result) == [(0, 0, 10, "absent")]
        assert result.jobs["finish_s"].tolist() == [20, 30]

    def test_the_last_word_before_the_start_counts(self) -> None:
        result = run(
            jobs((0, 1, 5)),
            self.cluster(Change(-5, (0, 1), False), Change(-9, (1,), True), Change(0, (0,), True)),
            Greedy(),
        )
        # Node 0 is back by 0; node 1 was present at -9 and taken away at -5.
        assert outages(result) == [(1, 0, pytest.approx(np.nan, nan_ok=True), "absent")]
        assert gantt(result) == ["j0 0-5 n0x1 finished"]

    def test_what_is_there_cannot_come_and_what_is_gone_cannot_go(self) -> None:
        changes = (
            Change(1, (0,), True),
            Change(2, (0,), False),
            Change(3, (0,), False),
            Change(4, (0,), True),
            Change(5, (0,), True),
        )
        result = run(jobs((0, 1, 50)), self.cluster(*changes), Script({0: {0: on(1)}}))
        assert outages(result) == [(0, 2, 4, "absent")]

    def test_a_node_out_for_two_reasons_returns_when_both_are_over(self) -> None:
        changes = (Change(4, (0,), False), Change(8, (0,), True))
        result = run(
            jobs((0, 1, 50)),
            self.cluster(*changes),
            Script({0: {0: on(1)}}),
            faults=Faults(outages="0:2:6"),
        )
        assert outages(result) == [(0, 2, 8, "outage")]

    def test_a_removal_evicts(self) -> None:
        result = run(
            jobs((0, 1, 5)),
            self.cluster(Change(3, (0,), False)),
            Greedy(),
            Overheads(checkpoint_every_s=0),
        )
        assert gantt(result) == ["j0 0-3 n0x1 evicted", "j0 3-8 n1x1 finished"]

    def test_who_fits_only_on_nodes_that_nobody_knows_of_is_not_kept_waiting(self) -> None:
        # One node of 1 GPU, one of 2 from 10 on. Jobs of 2 GPUs at 0 and at 10: known of, the first
        # waits for it too; unknown, it is turned away.
        for foreseen, outcome in (
            (True, ["completed", "completed"]),
            (False, ["impossible", "completed"]),
        ):
            changes = (Change(0, (1,), False), Change(10, (1,), True, foreseen))
            cluster = Cluster((NodeGroup(1, 1, "v100"), NodeGroup(1, 2, "v100")), changes=changes)
            assert (
                run(jobs((0, 2, 5), (10, 2, 5)), cluster, Greedy()).jobs["outcome"].tolist()
                == outcome
            )


class TestRandom:
    def result(self, seed: int, **more: Any) -> Any:
        return run(
            jobs((0, 1, 1)),
            "20x1:v100",
            Greedy(),
            faults=Faults(mtbf_h=2, mttr_h=0.5, **more),
            seed=seed,
            stop="horizon",
            horizon_s=360_000.0,
        )

    def test_times_between_failures_and_to_repair_are_exponential(self) -> None:
        rows = self.result(1).outages.dropna()
        rows = rows.sort_values(["node", "t0"])
        repairs = (rows["t1"] - rows["t0"]) / 3600
        between = (rows["t0"] - rows["t1"].groupby(rows["node"]).shift(fill_value=0.0)) / 3600
        # About 20 nodes x 100 h / 2.5 h = 800 outages: standard errors of 3.5 %, so 4 of them; the
        # deviation of an exponential is its mean.
        assert len(rows) == pytest.approx(800, rel=0.15)
        assert between.mean() == pytest.approx(2.0, rel=0.15)
        assert repairs.mean() == pytest.approx(0.5, rel=0.15)
        assert repairs.std() == pytest.approx(0.5, rel=0.25)

    def test_a_seed_is_a_history(self) -> None:
        pd.testing.assert_frame_equal(self.result(1).outages, self.result(1, retries=5).outages)
        assert self.result(1).outages["t0"].tolist() != self.result(2).outages["t0"].tolist()

    def test_nodes_fail_independently(self) -> None:
        first = self.result(1).outages.groupby("node")["t0"].first()
        assert first.nunique() == len(first)

    def test_repair_at_once(self) -> None:
        result = run(
            jobs((0, 1, 36_000)),
            "1x1:v100",
            Greedy(),
            Overheads(checkpoint_every_s=60),
            Faults(mtbf_h=1, mttr_h=0),
            seed=3,
        )
        assert result.jobs["outcome"][0] == "completed"
        assert (result.outages["t1"] == result.outages["t0"]).all()
        assert result.jobs["evictions"][0] == len(result.outages) > 3


class TestInterruptions:
    def test_a_draw_belongs_to_seed_job_and_attempt(self) -> None:
        faults = Faults(interruptions_per_node_h=2)
        draws = {
            (seed, job, attempt): faults.interruption_s(seed, job, attempt)
            for seed in range(3)
            for job in range(3)
            for attempt in range(3)
        }
        assert len(set(draws.values())) == 27
        assert faults.interruption_s(1, 2, 0) == draws[1, 2, 0]

    def test_the_mean_is_that_of_the_rate(self) -> None:
        faults = Faults(interruptions_per_node_h=2)
        mean = np.mean([faults.interruption_s(0, job, 0) for job in range(2000)])
        # 3600 / 2 = 1800 s, standard error 2.2 %.
        assert mean == pytest.approx(1800, rel=0.09)

    def test_without_a_rate_there_is_none(self) -> None:
        assert Faults().interruption_s(0, 0, 0) == inf

    def test_an_interruption_leaves_the_node_intact(self) -> None:
        faults = Faults(interruptions_per_node_h=3600)
        script = Script({0: {0: across({0: 1, 1: 1})}})
        after = faults.interruption_s(5, 0, 0) / 2
        result = run(
            jobs((0, 2, 10_000)),
            TWO,
            script,
            Overheads(checkpoint_every_s=0),
            faults,
            seed=5,
            horizon_s=after + 1,
        )
        assert gantt(result)[0] == f"j0 0-{after:g} n0x1 n1x1 evicted"
        assert result.outages.empty
        assert script.calls[1].delta.evicted == (
            (0, "interruption", "worker", pytest.approx(after)),
        )

    def test_a_job_that_finishes_first_is_not_interrupted(self) -> None:
        after = Faults(interruptions_per_node_h=3600).interruption_s(5, 0, 0)
        result = run(
            jobs((0, 1, after)),
            "1x1:v100",
            Greedy(),
            faults=Faults(interruptions_per_node_h=3600),
            seed=5,
        )
        assert result.jobs.loc[0, ["outcome", "evictions"]].tolist() == ["completed", 0]

    def test_every_attempt_draws_again_until_the_retries_are_used_up(self) -> None:
        faults = Faults(interruptions_per_node_h=3600, retries=2)
        result = run(jobs((0, 1, 10_000)), "1x1:v100", Greedy(), faults=faults, seed=5)
        ends = np.cumsum([faults.interruption_s(5, 0, attempt) for attempt in range(3)])
        assert result.segments["t1"].tolist() == pytest.approx(ends.tolist())
        assert result.jobs.loc[0, ["outcome", "evictions"]].tolist() == ["failed", 3]

    def test_stops_do_not_wind_the_clock_back(self) -> None:
        # Whoever is stopped and started again before the interruption is interrupted after the same
        # time with a grant.
        faults = Faults(interruptions_per_node_h=3600)
        after = faults.interruption_s(5, 0, 0)
        script = Script({0: {0: on(0)}, after * 0.75: {0: None}, after: {0: on(0)}})
        result = run(
            jobs((0, 1, 10_000)), "1x1:v100", script, faults=faults, seed=5, horizon_s=after * 3
        )
        assert result.jobs["evictions"][0] == 1
        assert result.segments["t1"].tolist()[1] == pytest.approx(after * 1.25)

    def test_a_change_of_nodes_changes_the_rate(self) -> None:
        # Half of the draw is used up on two nodes, the other half takes twice as long on one.
        faults = Faults(interruptions_per_node_h=3600)
        both = faults.interruption_s(5, 0, 0) / 2
        script = Script({0: {0: across({0: 1, 1: 1})}, both / 2: {0: on(2, 2)}})
        result = run(
            jobs((0, 2, 10_000)),
            "2x1:v100,1x2:v100",
            script,
            faults=faults,
            seed=5,
            horizon_s=both * 3,
        )
        assert result.segments["t1"].tolist()[1] == pytest.approx(both * 1.5)
