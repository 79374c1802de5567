"""Quotas around another policy, worked out by hand."""

from __future__ import annotations

import random
from math import inf
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocators import hard_quotas, make
from allocators.quotas import CATCH_ALL, Quota, QuotaTree, read_quotas, with_catch_all, write_quotas
from sim.cluster import Cluster, NodeGroup
from sim.contract import ParameterError, Spec
from sim.engine.simulator import Simulator
from sim.result import RunResult
from sim.trace import Trace


def test_a_table_is_read_and_written() -> None:
    rows = read_quotas("a b: 4 max 6 weight 2 priority 1 under all; all: 8\nc: 0.5")
    assert rows == (Quota("all", 8), Quota("c", 0.5), Quota("a b", 4, 6, 2, 1, "all"))
    assert read_quotas(write_quotas(rows)) == rows
    assert rows[0].maximum == inf
    assert read_quotas("") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 8", "'a 8' is no quota"),
        ("a: 8; a: 9", "name a twice"),
        ("a: 8 under b", "under b, which has no row"),
        ("a: 1 under b; b: 1 under a", "a under b under a"),
        ("a: -1", "The quota of a is '-1'"),
        ("a: 8 max", "cannot be read at 'max'"),
        ("a: 8 at 9", "cannot be read at 'at'"),
    ],
)
def test_a_wrong_table_is_said(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=f"quota: table: .*{message}"):
        make(Spec.of("quota", table=text))


def test_shares_go_down_the_tree() -> None:
    tree = QuotaTree(with_catch_all(read_quotas("g: 6; h: 2; a: 4 under g; b: 2 under g")))
    requests = {"g": 10.0, "h": 2.0, CATCH_ALL: 5.0, "a": 1.0, "b": 9.0}
    shares = {"g": 6, "h": 2, CATCH_ALL: 0, "a": 1, "b": 5}
    by_row = tree.shares(8, [requests[name] for name in tree.at])
    assert dict(zip(tree.at, by_row, strict=True)) == shares
    leaves = {tree.at[name]: np.array([requests[name]]) for name in ("a", "b", "h", CATCH_ALL)}
    series = tree.share_series(np.array([8.0]), leaves)
    assert dict(zip(tree.at, series[:, 0], strict=True)) == shares


@pytest.mark.parametrize("seed", range(40))
def test_shares_of_many_states_equal_those_of_one_to_the_last_bit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows: list[Quota] = []
    for at in range(int(rng.integers(1, 14))):
        parent = str(rng.choice(["", *(row.name for row in rows)][:4]))
        deserved, maximum = rng.choice([0, 1, 2.5, 3.1, 8, inf]), rng.choice([inf, inf, 6.3, 2])
        weight = rng.choice([0, 1, 2, 0.3, 0.1])
        row = Quota(f"r{at}", deserved, maximum, weight, int(rng.integers(0, 3)), parent)
        rows.append(row)
    tree, states = QuotaTree(with_catch_all(tuple(rows))), 60
    leaves = sorted({tree.leaf(name) for name in tree.at})
    totals = rng.choice([0, 4, 20, 31.7, 64], states)
    requests = rng.choice([0, 1, 2.5, 7, 20.1], (len(leaves), states))
    series = tree.share_series(totals, dict(zip(leaves, requests, strict=True)))
    for state in range(states):
        sums = [0.0] * len(tree.rows)
        for leaf, amount in zip(leaves, requests[:, state].tolist(), strict=True):
            for at in tree.path(leaf):
                sums[at] += amount
        assert series[:, state].tolist() == tree.shares(float(totals[state]), sums)


def run(rows: list[tuple[float, int, float, str]], cluster: str, **params: Any) -> RunResult:
    """Rows are submission, GPUs, run time and team, in order of submission."""
    frame = pd.DataFrame(rows, columns=["submit_time_s", "num_gpus", "duration_s", "vc"])
    frame.insert(0, "job_id", [f"j{at:03}" for at in range(len(frame))])
    spec = Spec.of("quota", **params)
    return Simulator(Trace.of(frame), Cluster.parse(cluster), make(spec)).run()


def starts(result: RunResult) -> list[float]:
    return list(result.jobs["first_start_s"])


ROWS = [(0, 4, 100, "a"), (0, 4, 100, "a"), (10, 4, 100, "b"), (20, 2, 10, "a")]
TWOS = [(0, 2, 100, "a"), (0, 2, 100, "a"), (0, 2, 100, "a")]
SMALLER = [(0, 3, 100, "a"), (0, 2, 100, "a"), (0, 1, 50, "a")]
THREES = [(0, 3, 100, "a"), (0, 3, 100, "a"), (0, 3, 100, "b"), (0, 3, 100, "b")]


@pytest.mark.parametrize(
    ("rows", "params", "expected"),
    [
        # a may hold 4 of 8 GPUs; the last job would fit beside, and waits for its team.
        (ROWS, {"table": "a: 4; b: 4", "borrow": False}, [0, 100, 10, 200]),
        # Lent: both jobs of a run at first. At 10 s b asks, and waits until 100 s; so does the last
        # of a.
        (ROWS, {"table": "a: 4; b: 4"}, [0, 0, 100, 100]),
        # A maximum bounds what is borrowed, of a team and of a group.
        (TWOS, {"table": "a: 2 max 4; b: 6"}, [0, 0, 100]),
        (TWOS, {"table": "g: 2 max 4; a: 2 under g; b: 6"}, [0, 0, 100]),
        # A smaller job may pass within its team.
        (SMALLER, {"table": "a: 4; b: 4", "borrow": False}, [0, 100, 0]),
        (SMALLER, {"table": "a: 4; b: 4", "borrow": False, "skip": False}, [0, 100, 100]),
        # Each may borrow 4 of 8. a holds 3 / 4 of its share after its first job, b 0 / 4: b is
        # next. Then 2 GPUs are left, too few for a third job of 3.
        (THREES, {"table": "a: 0; b: 0"}, [0, 100, 0, 100]),
    ],
)
def test_starts_under_quotas(
    rows: list[tuple[float, int, float, str]], params: dict[str, Any], expected: list[float]
) -> None:
    assert starts(run(rows, "1x8:v100", **params)) == expected


def test_weights_divide_what_is_left() -> None:
    rows = [(0.0, 1, 100.0, "ab"[at % 2]) for at in range(16)]
    result = run(rows, "1x8:v100", table="a: 0 weight 3; b: 0")
    first = [row[3] for row, start in zip(rows, starts(result), strict=True) if start == 0]
    assert (first.count("a"), first.count("b")) == (6, 2)


def test_what_can_never_start_is_refused() -> None:
    rows = [(0, 6, 100, "a"), (0, 2, 100, "x")]
    result = run(rows, "1x8:v100", table="a: 4; b: 4", borrow=False)
    assert list(result.jobs["outcome"]) == ["refused", "refused"]
    assert result.remarks == (
        "quota: x have no row; their quota is 0 (without quota).",
        "2 jobs were refused: larger than what the quota of the team ever allows.",
    )


def test_without_a_table_teams_have_equal_parts() -> None:
    result = run(ROWS, "1x8:v100", borrow=False)
    assert starts(result) == [0, 100, 10, 200]
    assert result.remarks[0].startswith(
        "quota has no table: the teams of column vc have 4 GPUs each."
    )


def test_cores_are_shared_out_where_nodes_have_some() -> None:
    result = run(ROWS, "1x8:v100", resource="cpus")
    assert result.remarks[0] == "quota: the nodes have no number of cores, so none are shared out."


def test_policies_that_resize_are_refused() -> None:
    with pytest.raises(ParameterError, match="changes the size of jobs"):
        make(Spec.parse("quota:inner=mip_elastic"))


@pytest.mark.parametrize(
    "inner", ["fifo", "sjf", "easy", "srtf", "las", "partition", "slurm", "gavel", "rounds"]
)
def test_any_policy_stays_within_hard_quotas(inner: str) -> None:
    rng = random.Random(17)
    rows = sorted(
        (float(rng.randrange(3000)), rng.choice([1, 2, 4]), 10.0 * rng.randrange(1, 60), team)
        for team in (rng.choice("ab") for _ in range(60))
    )
    result = run(rows, "2x8:v100", inner=Spec(inner), table="a: 5; b: 7", borrow=False)
    assert (result.jobs["outcome"] == "completed").all()
    frame = result.segments.assign(team=[rows[job][3] for job in result.segments["job"]])
    for t in sorted(frame["t0"].unique()):
        now = frame[(frame["t0"] <= t) & (frame["t1"] > t)].groupby("team")["gpus"].sum()
        assert now.get("a", 0) <= 5, t
        assert now.get("b", 0) <= 7, t


def test_quotas_in_cores_bound_cores_and_are_no_quotas_of_gpus() -> None:
    frame = pd.DataFrame(
        {
            "job_id": list("123"),
            "submit_time_s": 0.0,
            "num_gpus": [1, 1, 1],
            "cpus": [6.0, 3.0, 2.0],
            "duration_s": 100.0,
            "qos": ["low", "low", "high"],
        }
    )
    policy = make(hard_quotas(Spec("fifo"), "low: 8; high: 16", "qos", "cpus"))
    assert policy.quotas() == ()  # type: ignore[attr-defined]
    cluster = Cluster((NodeGroup(1, 8, "v100", 16.0, 64.0),))
    result = Simulator(Trace.of(frame), cluster, policy).run()
    # 6 + 3 cores of low are more than 8.
    assert result.jobs["first_start_s"].tolist() == [0, 100, 0]
    assert result.remarks == ("quota: the quotas add up to 24 cores, the cluster has 16.",)
