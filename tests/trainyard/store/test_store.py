from __future__ import annotations

import logging
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sim.errors import TraceError
from sim.result import CAUSES, ENDINGS, OUTCOMES, RunResult, Timing
from sim.trace import SCHEDULER_NUMBERS, SCHEDULER_TEXTS, Trace
from tests.shared import SetClock
from trainyard.store import FRAMES, Store, StoreError, default_root, files, plain
from trainyard.store import index as indices
from trainyard.store.entry import to_parquet

KEY = "ab" * 16
OTHER = "ef" * 16
ABOUT = {"scenario": {"seed": 1}, "versions": {"python": "3"}}
CHARTS = {"queue": pd.DataFrame({"t_s": [0.0, 1.0], "waiting": [1.0, 0.0]})}


def result_of(seed: int = 0, jobs: int = 50) -> RunResult:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "submit_s": rng.random(jobs),
            "finish_s": np.where(rng.random(jobs) < 0.2, np.nan, rng.random(jobs)),
            "gpus": rng.integers(1, 9, jobs),
        }
    )
    frame["outcome"] = pd.Categorical(
        [OUTCOMES[at] for at in rng.integers(0, 2, jobs)], categories=list(OUTCOMES)
    )
    segments = pd.DataFrame(
        {"job": np.arange(jobs), "t0": rng.random(jobs), "t1": 1 + rng.random(jobs)}
    )
    segments["ended"] = pd.Categorical([ENDINGS[0]] * jobs, categories=list(ENDINGS))
    notes = pd.DataFrame({"decision": [1], "name": pd.Series(["gap"], dtype="str"), "value": [0.5]})
    outages = pd.DataFrame(
        {"node": [1], "t0": [0.0], "t1": [np.nan], "cause": pd.Series(["outage"], dtype="str")}
    )
    empty = pd.DataFrame({"segment": pd.Series(dtype=np.int64)})
    if not seed % 2:
        outages = outages.iloc[:0].reset_index(drop=True)
    outages["cause"] = pd.Categorical(outages["cause"], categories=["outage", "absent"])
    failures = pd.DataFrame(
        {"t": [3.0], "job": [1], "cause": pd.Categorical(["oom"], categories=list(CAUSES))}
    )
    frames = (
        frame,
        segments,
        empty,
        pd.DataFrame({"t": rng.random(3)}),
        notes,
        outages,
        failures,
        empty,
    )
    return RunResult(
        *frames, 12.5, "drained", 2, 7, ("So it was.",), Timing(1.0, 2.0, 0.1, 0.01, 80.0)
    )


def put(store: Store, key: str = KEY, result: RunResult | None = None) -> RunResult:
    result = result or result_of()
    store.put(
        key,
        result,
        {"jct_mean_s": np.float64(3.5), "jct_p99_s": float("nan"), "jobs": np.int64(50)},
        CHARTS,
        ABOUT,
    )
    return result


def place(store: Store, key: str = KEY) -> Path:
    return store.root / "runs" / key[:2] / key


def test_everything_comes_back(store: Store) -> None:
    assert store.get(KEY) is None
    assert not store.has(KEY)
    result = put(store)
    entry = store.get(KEY)
    assert entry is not None
    assert entry.summary == {"jct_mean_s": 3.5, "jct_p99_s": None, "jobs": 50}
    assert entry.scenario == {"seed": 1}
    assert entry.provenance["digest"] == result.digest() == entry.result().digest()
    assert entry.result().timing == result.timing
    assert entry.result().overflow == 7
    assert entry.remarks == entry.result().remarks == result.remarks
    pd.testing.assert_frame_equal(entry.jobs(), result.jobs)
    pd.testing.assert_frame_equal(entry.chart("queue"), CHARTS["queue"])
    assert [one.key for one in store.entries()] == [KEY]
    store.delete(KEY)
    assert store.entries() == []


def test_several_results_are_looked_up_at_once_and_only_whole_ones_are_found(store: Store) -> None:
    keys = [f"{at}" * 32 for at in range(1, 5)]
    for at, key in enumerate(keys[:3]):
        put(store, key, result_of(at))
    # One file of the second is gone; the fourth was never there.
    next(file for file in sorted(place(store, keys[1]).iterdir()) if file.is_file()).unlink()
    found = store.get_all(iter(keys))
    assert set(found) == {keys[0], keys[2]}
    for at in (0, 2):
        alone = store.get(keys[at])
        assert alone is not None
        assert found[keys[at]].summary == alone.summary
        assert found[keys[at]].result().digest() == result_of(at).digest()
    assert store.get_all([]) == {}
    with pytest.raises(StoreError):
        store.get_all(["../elsewhere"])


def test_nothing_half_written_is_ever_seen(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def failing(self: Path, data: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise OSError(28, "No space left on device")
        with self.open("wb") as file:
            file.write(data)

    monkeypatch.setattr(Path, "write_bytes", failing)
    with pytest.raises(StoreError, match=r"cannot be kept .*No space left"):
        put(store)
    assert store.get(KEY) is None
    assert list((store.root / "drafts").iterdir()) == []


def test_the_first_of_two_writers_wins(store: Store) -> None:
    put(store)
    first = store.get(KEY)
    assert first is not None
    created = first.provenance["created_s"]
    put(store)
    again = store.get(KEY)
    assert again is not None
    assert again.provenance["created_s"] == created
    assert list((store.root / "drafts").iterdir()) == []


def _write(root: str) -> None:
    store = Store(Path(root))
    for at in range(10):
        put(store, f"{at:032x}", result_of(at))


@pytest.mark.slow
def test_writers_in_several_processes(store: Store) -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_write, [str(store.root)] * 2))
    entries = store.entries()
    assert len(entries) == 10
    assert all(
        entry.result().digest() == result_of(int(entry.key, 16)).digest() for entry in entries
    )


def _add(root: str, key: str) -> set[str]:
    store = Store(Path(root))
    store.put_numbers(key * 32, {}, {})
    kept = {row.key[0] for row in store.index.rows("run")}
    store.index.close()
    return kept


def test_a_store_opened_twice_sees_what_other_processes_write(store: Store) -> None:
    # If the second opening released the locks of the first, the other process would close what it
    # takes for the last connection, and remove the write-ahead log in which this one goes on.
    store.put_numbers("a" * 32, {}, {})
    Store(store.root)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(_add, str(store.root), "b").result() == {*"ab"}
        store.put_numbers("c" * 32, {}, {})
        assert pool.submit(_add, str(store.root), "d").result() == {*"abcd"}


@pytest.mark.parametrize("harm", ["truncate", "remove"])
def test_damaged_entry_counts_as_absent_with_a_sentence(
    store: Store, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(store)
    folder = place(store)
    if harm == "truncate":
        (folder / "jobs.parquet").write_bytes((folder / "jobs.parquet").read_bytes()[:100])
    else:
        (folder / "segments.parquet").unlink()
    with caplog.at_level(logging.WARNING):
        assert store.get(KEY) is None
    assert "is damaged" in caplog.text
    put(store)
    assert store.has(KEY)


@pytest.mark.parametrize("harm", ["flipped", "unreadable"])
def test_a_changed_frame_is_noticed_when_it_is_read(store: Store, harm: str) -> None:
    put(store)
    entry = store.get(KEY)
    assert entry is not None
    path = place(store) / "jobs.parquet"
    if harm == "flipped":
        result_of().jobs.assign(submit_s=1.0).to_parquet(path, index=False, compression="lz4")
    else:
        path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(StoreError, match=r"was damaged .*Run the scenario again"):
        entry.result() if harm == "flipped" else entry.jobs()
    assert not store.has(KEY)
    with pytest.raises(StoreError, match="has no frame 'jobs'"):
        entry.jobs()


def test_trace_comes_back_with_the_same_digest(store: Store, trace: Trace) -> None:
    digest = store.put_trace(trace, {"read": 5})
    assert store.get_trace(digest).digest == trace.digest == digest
    info = store.trace_info(digest)
    assert info is not None
    assert (info.name, info.jobs, info.account) == ("four", 4, {"read": 5})
    assert [one.digest for one in store.traces()] == [digest]
    assert store.put_trace(trace) == digest
    store.delete_trace(digest)
    assert store.traces() == []
    with pytest.raises(TraceError, match="no longer on this machine"):
        store.get_trace(digest)


@pytest.mark.parametrize("harm", ["bytes", "other"])
def test_changed_trace_is_not_taken_for_the_old_one(store: Store, trace: Trace, harm: str) -> None:
    digest = store.put_trace(trace)
    path = store.root / "traces" / digest[:2] / digest / "jobs.parquet"
    if harm == "bytes":
        path.write_bytes(b"PAR1")
    else:
        trace.frame.assign(duration_s=1.0).to_parquet(path)
    with pytest.raises(TraceError, match=r"damaged|changed on disk"):
        store.get_trace(digest)


def test_old_things_expire_and_a_new_upload_renews(tmp_path: Path, trace: Trace) -> None:
    clock = SetClock()
    store = Store(tmp_path, clock=clock)
    put(store)
    digest = store.put_trace(trace)
    clock.go_on(29.0)
    assert store.expire() == 0
    store.put_trace(trace)
    clock.go_on(29.0)
    store.put_numbers(OTHER, {}, {})
    assert store.expire() == 1  # the run is 58 days old, the upload was renewed 29 days ago
    assert not store.has(KEY)
    clock.go_on(2.0)
    store.put_numbers("cd" * 16, {}, {})
    assert store.expire() == 1
    assert store.trace_info(digest) is None


def test_a_link_is_kept_from_its_last_use(tmp_path: Path) -> None:
    clock = SetClock()
    store = Store(tmp_path, clock=clock)
    key = store.put_link({"s": "abc", "t0": "60"})
    assert store.put_link({"t0": "60", "s": "abc"}) == key
    assert store.put_link({"s": "abd"}) != key
    clock.go_on(29.0)
    store.put_link({"s": "abc", "t0": "60"})
    clock.go_on(29.0)
    store.put_numbers(OTHER, {}, {})
    assert store.expire() == 1
    assert store.link_parameters(key) == {"s": "abc", "t0": "60"}
    clock.go_on(2.0)
    store.put_numbers("cd" * 16, {}, {})
    store.expire()
    assert store.link_parameters(key) is None


@pytest.mark.parametrize("wrong_days", [-60.0, 40.0])
def test_a_wrong_clock_deletes_nothing(tmp_path: Path, wrong_days: float) -> None:
    clock = SetClock()
    put(Store(tmp_path, clock=clock))
    clock.go_on(1.0)
    # The clock is wrong at the start, something is kept, and the clock is set right.
    clock.set_wrong(wrong_days)
    store = Store(tmp_path, clock=clock)
    assert store.expire() == 0
    store.put_numbers(OTHER, {"x": 1}, {})
    assert store.expire() == 0
    clock.set_wrong(-wrong_days)
    clock.go_on(1.0)
    assert store.expire() == 0
    assert store.numbers([KEY, OTHER]).keys() == {KEY, OTHER}


def test_a_clock_that_goes_wrong_deletes_nothing_and_keeps_the_order(tmp_path: Path) -> None:
    clock = SetClock()
    store = Store(tmp_path, clock=clock)
    put(store, OTHER)
    clock.set_wrong(40.0)
    clock.go_on(1.0)
    assert store.expire() == 0
    clock.set_wrong(-60.0)
    put(store, "cd" * 16)
    put(store, KEY)
    assert [entry.key for entry in store.entries()] == [KEY, "cd" * 16, OTHER]


def test_keys_cannot_leave_the_folder(store: Store) -> None:
    for name in ("../../etc/passwd", "", "AB" * 16, "a" * 65):
        with pytest.raises(StoreError, match="not a hash"):
            store.get(name)
        with pytest.raises(StoreError, match="not a hash"):
            store.delete_trace(name)


def test_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(StoreError, match=r"cannot be kept .*TRAINYARD_STORE"):
        put(Store(tmp_path / "file" / "store"))


def test_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINYARD_STORE", str(tmp_path))
    assert default_root() == tmp_path == Store().root
    monkeypatch.delenv("TRAINYARD_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for platform, part in (("linux", "data"), ("darwin", "Application Support"), ("win32", "")):
        monkeypatch.setattr(files, "sys", SimpleNamespace(platform=platform))
        monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
        assert part in str(default_root())
        assert default_root().name == "trainyard"


def test_plain_values_are_json() -> None:
    assert plain({"a": np.float64("nan"), "b": (np.int64(1), [float("inf"), "x", None, True])}) == {
        "a": None,
        "b": [1, [None, "x", None, True]],
    }


def test_every_frame_of_a_result_is_kept() -> None:
    assert set(FRAMES) == {
        name for name, kind in RunResult.__annotations__.items() if "DataFrame" in str(kind)
    }


ODD = {
    "no texts": pd.DataFrame({"user": pd.Categorical(["", None]).remove_categories("")}),
    "categories": pd.DataFrame({"user": pd.Categorical(["b", None, "a"], ["b", "a"])}),
    "objects": pd.DataFrame({"id": pd.Series(["a", None], dtype=object)}),
    "nothing": pd.DataFrame({"id": pd.Series([None, None], dtype=object)}),
    "texts": pd.DataFrame({"id": pd.Series(["a", None], dtype="str"), "is": [True, False]}),
    "no rows": pd.DataFrame({"id": pd.Series([], dtype="str"), "t": pd.Series([], dtype=float)}),
    "numbers": pd.DataFrame({"t": [0.5, np.nan], "at": np.array([1, -1], np.int8)}),
}


def test_files_are_those_that_pyarrow_makes_of_frames() -> None:
    frames = {name: getattr(result_of(), name) for name in FRAMES} | ODD
    for name, frame in frames.items():
        made = BytesIO()
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), made)
        expected, found = pq.read_table(made), pq.read_table(BytesIO(to_parquet(frame)))
        assert found.equals(expected), name
        assert found.schema.equals(expected.schema, check_metadata=True), name


def test_what_a_scheduler_says_of_jobs_is_kept_exactly(store: Store) -> None:
    jobs = {"job_id": ["1", "2"], "submit_time_s": [0.0, 5.0], "num_gpus": [1, 2]}
    numbers = {name: [1.0, np.nan] for name in SCHEDULER_NUMBERS}
    texts = {name: [None, f"{name}|a&b"] for name in SCHEDULER_TEXTS}
    trace = Trace.of(pd.DataFrame(jobs | {"duration_s": [60.0, 70.0]} | numbers | texts))
    kept = store.get_trace(store.put_trace(trace))
    assert kept.digest == trace.digest
    pd.testing.assert_frame_equal(kept.frame, trace.frame)


def test_doubts_about_a_trace_are_kept_and_change_no_digest(store: Store) -> None:
    jobs = {"job_id": ["1"], "submit_time_s": [0.0], "num_gpus": [1], "duration_s": [1.0]}
    plain_one = Trace.of(pd.DataFrame(jobs))
    trace = Trace.of(pd.DataFrame(jobs), doubts=[("cut", "Cut.")])
    assert trace.digest == plain_one.digest
    assert store.get_trace(store.put_trace(trace)).doubts == (("cut", "Cut."),)


def test_recipes_are_those_of_one_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SetClock()
    index = Store(tmp_path, clock=clock).index
    index.keep_recipe("ann", "a" * 12, "first")
    index.keep_recipe("ann", "a" * 12, "second")
    index.keep_recipe("bob", "b" * 12, "his")
    assert index.recipe("ann", "a" * 12) == "second"
    assert index.recipe("bob", "a" * 12) == ""
    index.forget_recipe("bob", "a" * 12)
    assert index.recipe("ann", "a" * 12) == "second"
    monkeypatch.setattr(indices, "MAX_RECIPES", 2)
    for at in range(3):
        clock.go_on(1.0)
        index.keep_recipe("ann", f"{at}" * 12, "more")
    assert [index.recipe("ann", mark * 12) for mark in "a012"] == ["", "", "more", "more"]
    assert index.recipe("bob", "b" * 12) == "his"
    index.forget_recipe("ann", "1" * 12)
    assert index.recipe("ann", "1" * 12) == ""
