from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lab.scenario import Scenario, TraceSpec
from lab.settings import with_settings
from lab.sources import changed, load_trace
from lab.thinning import kept_jobs, kept_users, renamed
from sim.errors import ParameterError, TraceError
from sim.trace import Trace

USERS = pd.Series(["ann", "bob", None, "ann", "cy", "bob", "dee", None])


def test_one_user_in_n_is_kept_with_all_jobs() -> None:
    kept = kept_users(USERS, 2, 0)
    groups = [set(kept[USERS.fillna("") == name]) for name in ("ann", "bob", "cy", "dee", "")]
    assert all(len(group) == 1 for group in groups)
    assert sum(group == {True} for group in groups) == 3
    assert list(kept_users(USERS.iloc[::-1], 2, 0)) == list(kept[::-1])
    assert kept_users(USERS, 1, 0).all()
    assert len(set(USERS.fillna("")[kept_users(USERS, 99, 0)])) == 1


def test_the_draw_is_the_same_everywhere_and_another_seed_draws_others() -> None:
    ids = [f"job {at}" for at in range(1000)]
    few, more = kept_jobs(ids, 10, 0), kept_jobs(ids, 100, 0)
    assert (few.sum(), more.sum(), kept_jobs(ids, 5000, 0).sum()) == (10, 100, 1000)
    assert not (few & ~more).any()
    assert (more & kept_jobs(ids, 100, 1)).sum() < 30
    assert list(np.flatnonzero(few)) == [132, 218, 228, 393, 396, 558, 619, 785, 799, 996]


def test_users_are_numbered_in_the_order_of_their_first_job() -> None:
    names = renamed(USERS)
    assert list(names.fillna("-")) == ["user 1", "user 2", "-", "user 1", "user 3", "user 2", "user 4", "-"]


def test_a_part_of_the_jobs_has_no_history(trace: Trace) -> None:
    part = changed(trace, TraceSpec("x", sample=2))
    assert len(part) == 2
    assert part.span_s > 0
    assert not part.has("start_time_s")
    assert changed(trace, TraceSpec("x", sample=99)).digest == trace.digest


def test_the_window_comes_first_and_the_load_last(trace: Trace) -> None:
    window = changed(trace, TraceSpec("x", from_s=10.0, sample=2))
    whole = changed(trace, TraceSpec("x", from_s=10.0, sample=2, load=2.0))
    assert list(whole.frame["job_id"]) == list(window.frame["job_id"])
    assert np.allclose(whole.frame["submit_time_s"], window.frame["submit_time_s"] / 2)


def test_renamed_users_keep_their_history_and_their_jobs() -> None:
    whole, hidden = load_trace(TraceSpec("sample:week")), load_trace(TraceSpec("sample:week", anonymise=True))
    assert set(hidden.frame["user"].unique()) == {f"user {at}" for at in range(1, whole.frame["user"].nunique() + 1)}
    pairs = pd.DataFrame({"was": whole.frame["user"], "now": hidden.frame["user"]}).drop_duplicates()
    assert pairs["was"].is_unique
    assert pairs["now"].is_unique
    assert hidden.has("start_time_s") == whole.has("start_time_s")


def test_users_of_a_trace_without_users_cannot_be_chosen(trace: Trace) -> None:
    bare = Trace.of(trace.frame.drop(columns="user", errors="ignore"), name="bare")
    with pytest.raises(TraceError, match="bare: the trace names no users"):
        changed(bare, TraceSpec("x", every_user=2))


def test_what_is_not_done_is_not_written_so_that_keys_stay(scenario: Scenario) -> None:
    plain = TraceSpec("sample:tiny")
    assert plain.to_json() == {"source": "sample:tiny", "fmt": "", "read": {}, "from_s": 0.0, "to_s": None, "load": 1.0}
    assert TraceSpec("sample:tiny", sample_seed=7) == plain
    again = TraceSpec.from_json({**plain.to_json(), "every_user": 1, "sample": 0, "sample_seed": 0, "anonymise": False})
    assert again == plain
    thin = TraceSpec("sample:tiny", every_user=2, sample=3, sample_seed=1, anonymise=True)
    assert TraceSpec.from_json(thin.to_json()) == thin


def test_a_setting_on_the_command_line_draws_a_sample(scenario: Scenario) -> None:
    made = Scenario.from_json(with_settings(scenario.to_json(), ["trace.sample=3", "trace.sample_seed=2", "trace.anonymise=true", "trace.every_user=2"]))
    assert made.trace == TraceSpec(scenario.trace.source, sample=3, sample_seed=2, anonymise=True, every_user=2)
    assert made.key("d" * 32) != scenario.key("d" * 32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sample": -1}, "trace.sample = -1 is not a whole number"),
        ({"sample": 1.5}, "trace.sample = 1.5 is not a whole number"),
        ({"every_user": 0}, "keeps nobody"),
        ({"anonymise": "yes"}, "neither true nor false"),
    ],
)
def test_unusable_values_are_one_sentence(change: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        TraceSpec.from_json({"source": "sample:tiny", **change})
