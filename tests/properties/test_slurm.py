"""What holds of Slurm's rules whatever the jobs: plans, usage, ranks, and no look ahead."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators import make
from allocators.sites.slurm.backfill import Planner
from allocators.sites.slurm.fairshare import Association, FairShare, Share
from allocators.sites.slurm.state import Mask, Placement, SlurmJob, mask_of
from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.contract import Spec
from sim.engine.simulator import Simulator
from sim.trace import Trace

SEEDS = st.integers(0, 2**32 - 1)


def crowd(seed: int, count: int = 40) -> Trace:
    rng = np.random.default_rng(seed)
    limit_s = rng.choice([120.0, 300.0, 600.0, 1800.0], count)
    rows = {
        "job_id": [str(at) for at in range(count)],
        "submit_time_s": np.cumsum(rng.exponential(40.0, count)).round(1),
        "num_gpus": rng.choice([1, 2, 4, 8, 12], count),
        "duration_s": (limit_s * rng.uniform(0.05, 1.0, count)).round(1) + 0.5,
        "time_limit_s": limit_s,
        "user": rng.choice(["ann", "bob", "cyd"], count),
    }
    return Trace.of(pd.DataFrame(rows))


def run(trace: Trace, seed: int, **more: Any) -> pd.DataFrame:
    policy = make(Spec.of("slurm", **more))
    return Simulator(trace, Cluster.parse("4x4:v100"), policy, Conditions(seed=seed)).run().jobs


@pytest.mark.slow
@given(SEEDS)
@settings(max_examples=15, deadline=None)
def test_no_start_pushes_a_plan_of_a_higher_priority_back(seed: int) -> None:
    plans: list[tuple[float, float, Mask]] = []

    class Watched(Planner):
        def begin(self, now_s: float) -> None:
            plans.clear()
            super().begin(now_s)

        def place(self, job: SlurmJob, nodes: Mask, **more: Any) -> Placement | None:
            before = list(self._plans)
            held = super().place(job, nodes, **more)
            if held:
                end_s = self._now_s + job.limit_s
                for begin_s, until_s, taken in before:
                    apart = end_s < begin_s or until_s <= self._now_s
                    assert apart or not taken & mask_of(held)
            return held

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("allocators.sites.slurm.controller.Planner", Watched)
        run(crowd(seed), seed)


@pytest.mark.slow
@given(SEEDS)
@settings(max_examples=15, deadline=None)
def test_how_long_unfinished_jobs_run_changes_no_earlier_start(seed: int) -> None:
    trace = crowd(seed)
    first = run(trace, seed)
    now_s = float(first["first_start_s"].median())
    rng = np.random.default_rng(seed)
    ended = (first["finish_s"] <= now_s).to_numpy()
    elapsed_s = np.maximum(now_s - first["first_start_s"].fillna(inf).to_numpy(), 0.0)
    frame = trace.frame.copy()
    other_s = elapsed_s + 1.0 + rng.permutation(frame["duration_s"].to_numpy())
    frame["duration_s"] = np.where(ended, frame["duration_s"], other_s)
    second = run(replace(trace, frame=frame), seed)
    before = (first["first_start_s"] <= now_s).to_numpy()
    assert before.sum() >= 10
    assert (first["first_start_s"][before] == second["first_start_s"][before]).all()
    assert (second["first_start_s"][~before] > now_s).all()


# -- fair share
# --------------------------------------------------------------------------------------------------


def tree_of(rng: np.random.Generator) -> tuple[Association, ...]:
    accounts = [
        Association(f"a{at}", "", f"a{rng.integers(at)}" if at and rng.random() < 0.5 else "root",
                    int(rng.integers(1, 50)))
        for at in range(6)
    ]  # fmt: skip
    users = [
        Association(f"a{at % 6}", f"u{at}", f"a{at % 6}", int(rng.integers(1, 5)))
        for at in range(18)
    ]
    return (*accounts, *users)


def everybody(fair: FairShare, entries: tuple[Association, ...]) -> list[Share]:
    return [fair.user_share(entry.account, entry.user) for entry in entries if entry.user]


@given(SEEDS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_usage_of_users_is_that_of_the_root(seed: int, tree: bool) -> None:
    rng = np.random.default_rng(seed)
    entries = tree_of(rng)
    fair = FairShare(entries, float(rng.uniform(100, 10_000)), 1.0, tree=tree)
    users = everybody(fair, entries)
    root = users[0]
    while root.parent is not None:
        root = root.parent
    for _ in range(5):
        span_s = float(rng.uniform(1, 400))
        used = [(user, span_s, float(rng.uniform(0, 64))) for user in users if rng.random() < 0.6]
        fair.renew(span_s, used)
        fair.book(users[int(rng.integers(len(users)))], float(rng.uniform(0, 1000)))
        assert sum(user.usage for user in users) == pytest.approx(root.usage)


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_users_of_accounts_side_by_side_do_not_interleave(seed: int) -> None:
    rng = np.random.default_rng(seed)
    entries = tree_of(rng)
    fair = FairShare(entries, inf, 1.0, tree=True)
    users = everybody(fair, entries)
    # Each has used something else, so that no two are tied.
    fair.renew(100.0, [(user, 100.0, float(rng.uniform(0.1, 64))) for user in users])
    assert sorted(user.factor for user in users) == [at / 19 for at in range(1, 19)]

    def below(share: Share) -> list[float]:
        if share.is_user:
            return [share.factor]
        return [factor for child in share.children for factor in below(child)]

    def check(account: Share) -> None:
        spans = sorted(
            (min(factors), max(factors))
            for child in account.children
            if not (child.is_user and child.name == "root") and (factors := below(child))
        )
        assert all(one[1] < other[0] for one, other in pairwise(spans))
        for child in account.children:
            check(child)

    root = users[0]
    while root.parent is not None:
        root = root.parent
    check(root)
