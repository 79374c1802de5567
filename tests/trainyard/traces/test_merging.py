from __future__ import annotations

from pathlib import Path

import pytest

from jobtraces import read
from sim.errors import TraceError
from trainyard.store import Store
from trainyard.traces.merging import merge_traces, store_merged
from trainyard.traces.sources import Source, import_account, load_source

HEAD = "job_id,submit_time_s,num_gpus,duration_s,user"
FIRST = f"{HEAD}\n1,0,1,600,ann\n2,60,2,1200,bob\n"
SECOND = f"{HEAD},vc\n2,10,4,100,ann,x\n2@2,20,1,5,eve,y\n,1,2,3,4,5,6\n"


def source(text: str, name: str) -> Source:
    imported = read(text.encode(), name=name)
    return Source(imported.trace, import_account(imported))


def dated(day: int) -> Source:
    text = f"submitted,GPUs,duration,job_id\n2026-03-{day:02d}T00:00:00+00:00,1,00:10:00,a\n"
    return source(text, f"{day}.csv")


def test_jobs_of_two_traces_are_one_trace() -> None:
    found = merge_traces({"a.csv": source(FIRST, "a.csv"), "b.csv": source(SECOND, "b.csv")})
    frame = found.trace.frame
    # Job 2@2 is there already, so that the second job 2 is called otherwise.
    assert frame["job_id"].tolist() == ["1", "2@2@2", "2@2", "2"]
    assert frame["submit_time_s"].tolist() == [0.0, 0.0, 10.0, 60.0]
    assert frame["user"].astype(str).tolist() == ["ann", "ann", "eve", "bob"]
    assert found.trace.name == "a.csv + b.csv"
    account = found.account
    assert account["file"] == "a.csv + b.csv"
    assert (account["read"], account["used"], account["dropped"]) == (5, 4, 1)
    assert account["reasons"][0]["reason"].startswith("b.csv: ")
    assert account["guesses"][0].endswith("so all start at second 0.")
    assert account["guesses"][1].startswith("1 id occurred in an earlier trace too")


def test_instants_are_kept() -> None:
    found = merge_traces({"late": dated(9), "early": dated(8)})
    assert found.trace.frame["submit_time_s"].tolist() == [0.0, 86400.0]
    assert found.trace.frame["job_id"].tolist() == ["a@2", "a"]
    assert found.trace.epoch.startswith("2026-03-08T00:00:00")


def test_traces_without_a_common_clock_are_refused() -> None:
    with pytest.raises(TraceError, match="b has a start date and a has none"):
        merge_traces({"a": source(FIRST, "a"), "b": dated(8)})
    with pytest.raises(TraceError, match="at least two"):
        merge_traces({"a": source(FIRST, "a")})


def test_uploads_are_kept_as_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    spec = store_merged({"a.csv": FIRST.encode(), "b.csv": SECOND.encode()}, store, ("me",))
    kept = load_source(spec, store)
    assert len(kept.trace) == kept.account["used"] == 4
    assert store.index.owners(spec.source.removeprefix("store:")) == {"me"}
