from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from sim.conditions import Measure
from sim.errors import TraceError
from sim.trace import Trace
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.traces.sources import (
    apply_changes,
    check_measure,
    load_source,
    load_trace,
    source_digest,
)

CSV = "job_id,submit_time_s,num_gpus,duration_s\na,0,1,10\nb,5,2,-3\nc,6,0.5,20\n"


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(CSV, encoding="utf-8")
    return path


def test_file_comes_with_its_account(csv: Path) -> None:
    source = load_source(TraceSpec(str(csv)))
    account = source.account
    assert (account["read"], account["used"], account["dropped"]) == (3, 2, 1)
    assert (
        account["read"]
        == account["used"] + account["dropped"]
        == len(source.trace) + account["dropped"]
    )
    assert sum(item["rows"] for item in account["reasons"] if item["action"] == "dropped") == 1
    assert source.imported is not None
    assert source.cluster is None


def test_a_file_is_read_once_until_it_changes(csv: Path) -> None:
    first = load_source(TraceSpec(str(csv))).trace
    assert load_source(TraceSpec(str(csv), load=2.0)).trace is first
    csv.write_text(CSV + "d,7,1,5\n", encoding="utf-8")
    os.utime(csv, ns=(1, 1))
    assert len(load_source(TraceSpec(str(csv))).trace) == 3


def test_sample_comes_with_its_cluster() -> None:
    source = load_source(TraceSpec("sample:tiny"))
    assert source.cluster is not None
    assert source.account["read"] == source.account["used"] == len(source.trace) == 12


def test_stored_trace_needs_no_reading_for_its_digest(store: Store, trace: Trace) -> None:
    digest = store.put_trace(trace, {"read": 5, "used": 4})
    spec = TraceSpec(f"store:{digest}")
    assert source_digest(spec) == digest == trace.digest
    assert load_trace(spec, store).digest == digest
    assert load_source(spec, store).account["read"] == 5


def test_same_jobs_from_file_and_store_have_one_digest(csv: Path, store: Store) -> None:
    trace = load_trace(TraceSpec(str(csv)))
    assert source_digest(TraceSpec(f"store:{store.put_trace(trace)}")) == source_digest(
        TraceSpec(str(csv))
    )


def test_window_starts_its_own_clock(trace: Trace) -> None:
    cut = apply_changes(trace, TraceSpec("x", from_s=10.0, to_s=40.0))
    assert list(cut.frame["job_id"]) == ["b", "c"]
    assert list(cut.frame["submit_time_s"]) == [0.0, 10.0]
    assert list(cut.frame["start_time_s"]) == [90.0, 90.0]
    assert list(cut.frame["deadline_s"]) == [500.0, 510.0]


def test_load_compresses_arrivals_and_drops_the_history(trace: Trace) -> None:
    fast = apply_changes(trace, TraceSpec("x", load=2.0))
    assert list(fast.frame["submit_time_s"]) == [0.0, 5.0, 10.0, 20.0]
    assert np.allclose(fast.frame["deadline_s"] - fast.frame["submit_time_s"], 500.0)
    assert not fast.has("start_time_s")
    assert fast.gpu_seconds == trace.gpu_seconds


def test_unchanged_trace_is_the_same_object(trace: Trace) -> None:
    assert apply_changes(trace, TraceSpec("x")) is trace
    spec = TraceSpec("x", load=2.0)
    assert apply_changes(trace, spec) is apply_changes(trace, spec)


@pytest.mark.parametrize(("window", "end"), [((1e6, 2e6), "2e"), ((1e6, float("inf")), "the end")])
def test_empty_window_says_when_the_last_job_came(
    trace: Trace, window: tuple[float, float], end: str
) -> None:
    with pytest.raises(
        TraceError, match=rf"no job was submitted between .*{end}.*; the last was submitted at 40 s"
    ):
        apply_changes(trace, TraceSpec("x", from_s=window[0], to_s=window[1]))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("sample:nobody", "no sample 'nobody'"),
        ("store:" + "0" * 32, "no longer on this machine"),
        ("store:../../etc", "not a hash"),
        ("nowhere/at/all.csv", "cannot be opened"),
        ("a\0b", "not the path of a file|cannot be opened"),
    ],
)
def test_missing_sources_are_one_sentence(store: Store, source: str, message: str) -> None:
    with pytest.raises(Exception, match=message) as caught:
        load_trace(TraceSpec(source), store)
    assert "\n" not in str(caught.value)


def test_folder_and_large_file_are_refused(tmp_path: Path, csv: Path) -> None:
    with pytest.raises(TraceError, match="this is a folder"):
        load_trace(TraceSpec(str(tmp_path)))
    with pytest.raises(
        TraceError, match=r"jobs.csv: \d+ bytes are more than the limit of 10 bytes\. .*--max-mb"
    ):
        load_source(TraceSpec(str(csv)), max_mb=1e-5)


def test_three_hundred_megabytes_are_refused_unless_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(300_000_000)
    with pytest.raises(
        TraceError,
        match=(
            r"large.csv: 300 MB are more than the limit of 200 MB\. .* raise the limit with"
            r" --max-mb\."
        ),
    ):
        load_source(TraceSpec(str(path)))
    with pytest.raises(TraceError, match="binary"):
        load_source(TraceSpec(str(path)), max_mb=301)


def test_a_raised_limit_counts_for_what_is_unpacked_too(
    csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.traces.sources.MAX_UNPACKED_BYTES", 50)
    packed = csv.with_suffix(".gz")
    packed.write_bytes(gzip.compress(csv.read_bytes() * 50))
    with pytest.raises(TraceError, match="unpacks to more than the limit of"):
        load_source(TraceSpec(str(packed)), max_mb=packed.stat().st_size / 1e6)
    assert len(load_source(TraceSpec(str(packed)), max_mb=1).trace)


@pytest.mark.parametrize(
    ("measure", "window"),
    [
        (Measure(from_s=1e6), "from 1e\\+06 s to the end"),
        (Measure(to_s=-1), "from the start to -1 s"),
        (Measure(first_job=100), "rows 100 to the end"),
        (Measure(first_job=2, last_job=1), "rows 2 to 1"),
    ],
)
def test_a_measured_window_without_jobs_is_refused(
    trace: Trace, measure: Measure, window: str
) -> None:
    with pytest.raises(
        TraceError,
        match=rf"the measured window \(.*{window}\) holds none of the \d+ jobs; the last was sub",
    ):
        check_measure(trace, measure)
    check_measure(trace, Measure(first_job=1, last_job=1))
