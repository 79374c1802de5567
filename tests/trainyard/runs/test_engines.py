"""Which engine makes a run, what it does without a compiler, and runs without a record."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pyarrow.parquet as pq
import pytest

from allocators import make
from sim import metrics
from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.contract import Spec
from sim.engine.fast import compiled, queue_loop, runner
from sim.engine.fast.runner import NotPlainError
from sim.engine.faults import Faults
from sim.errors import ParameterError, TraceError
from sim.trace import Trace
from tests.properties.runs import busy_trace
from trainyard.runs import engines
from trainyard.runs.summary_only import JOB_COLUMNS, run_totals, write_jobs
from trainyard.traces.summary_reader import read_minimal_trace

CLUSTER = Cluster.parse("4x8:v100")
TRACE = busy_trace(200, 1)
FAILING = Conditions(faults=Faults(mtbf_h=30, mttr_h=3))
INTERRUPTED = Conditions(faults=Faults(interruptions_per_node_h=0.1))


def run(name: str, conditions: Conditions | None = None, engine: str = "") -> str:
    made = engines.simulate(
        TRACE, CLUSTER, make(Spec.parse(name)), conditions or Conditions(), engine
    )
    return made.timing.engine


@pytest.mark.usefixtures("fast_engine")
def test_the_fast_engine_is_used_where_it_can_be() -> None:
    assert run("fifo", engine="fast") == "fast"
    assert run("fifo", engine="kernel") == "kernel"
    assert run("fifo", engine="auto") == "fast"
    assert run("fifo", FAILING, "auto") == "fast"
    assert run("fifo", INTERRUPTED, "auto") == "kernel"
    assert run("fifo:wait_for_type=60", engine="auto") == "kernel"
    assert run("recorded", engine="auto") == "kernel"


def test_only_a_large_trace_loads_the_fast_engine(
    anew: pytest.MonkeyPatch, fast_engine: None
) -> None:
    compiled.forget()
    assert run("fifo") == "kernel"
    anew.setattr(engines, "LARGE", len(TRACE))
    assert run("fifo") == "fast"
    # A process that has loaded it uses it for small traces too.
    anew.setattr(engines, "LARGE", len(TRACE) + 1)
    assert run("fifo") == "fast"


@pytest.mark.parametrize(
    ("name", "conditions", "why"),
    [
        ("fifo", INTERRUPTED, "jobs are interrupted"),
        ("easy", FAILING, "nodes fail, come or go while GPUs are reserved"),
        ("recorded", Conditions(), "only policies with a fixed rule"),
        ("sjf:mix=true", Conditions(), "only policies with a fixed rule"),
        ("fifo", Conditions(stop="measured"), "ends with the jobs that count"),
    ],
)
def test_the_fast_engine_says_what_it_cannot_run(
    name: str, conditions: Conditions, why: str
) -> None:
    with pytest.raises(ParameterError, match=why):
        run(name, conditions, "fast")


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ParameterError, match="There is no engine"):
        run("fifo", engine="slow")


@pytest.mark.usefixtures("fast_engine")
def test_the_engine_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(engines.SETTING, "kernel")
    assert run("fifo", engine="") == "kernel"
    assert run("fifo", engine="fast") == "fast"
    monkeypatch.setenv(engines.SETTING, "fast")
    assert run("fifo", engine="") == "fast"
    monkeypatch.setenv(engines.SETTING, "slow")
    with pytest.raises(ParameterError, match="There is no engine 'slow'"):
        run("fifo", engine="")


@pytest.mark.usefixtures("fast_engine")
def test_jobs_beyond_the_clock_are_left_to_the_general_simulator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "LARGE", 0)
    trace = Trace.of(TRACE.frame.assign(duration_s=2e9))
    found = engines.simulate(trace, CLUSTER, make(Spec("fifo")), Conditions(), "auto")
    assert found.timing.engine == "kernel"
    assert "when the clock ends" in found.reason


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A process that does not know yet whether it can compile."""
    monkeypatch.delenv(engines.SETTING)
    engines._warn_once.cache_clear()
    compiled.forget()
    yield monkeypatch
    compiled.forget()


def test_without_a_compiler_the_general_engine_makes_all_runs(
    anew: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known = importlib.util.find_spec
    anew.setattr(importlib.util, "find_spec", lambda name: None if name == "numba" else known(name))
    anew.setattr(engines, "LARGE", 0)
    assert (
        engines.load()
        == engines.warm()
        == (
            "The fast engine is off, because numba is not installed (python -m pip install numba)."
            " The general engine makes the runs: slower, with the same results."
        )
    )
    assert [run("fifo"), run("fifo"), run("easy")] == ["kernel"] * 3
    assert caplog.messages == [engines.warm()]
    with pytest.raises(ParameterError, match="cannot make this run: numba is not installed"):
        run("fifo", engine="fast")


def test_where_nothing_can_be_written_the_general_engine_makes_all_runs(
    anew: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("numba")
    file = tmp_path / "no folder"
    file.touch()
    anew.setattr(compiled, "_bases", lambda: iter([file]))
    anew.setattr(engines, "LARGE", 0)
    assert "no folder for its machine code can be written" in engines.warm()
    assert run("fifo") == "kernel"


@pytest.fixture
def compilers(anew: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Commands of the compilers that a process on a fresh machine has started; none runs."""
    pytest.importorskip("numba")
    anew.setattr(compiled, "_bases", lambda: iter([tmp_path]))
    began: list[list[str]] = []
    anew.setattr(engines, "_COMPILERS", [])
    started = SimpleNamespace(
        Popen=lambda command, **_: began.append(command), DEVNULL=subprocess.DEVNULL
    )
    anew.setattr(engines, "subprocess", started)
    return began


COMPILER = [sys.executable, "-m", "trainyard.runs.engines"]


@pytest.mark.parametrize("large", [0, 10_000])
def test_the_first_run_starts_a_compiler_and_says_so_once(
    large: int,
    anew: pytest.MonkeyPatch,
    compilers: list[list[str]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    anew.setattr(engines, "LARGE", large)
    assert [run("recorded"), run("fifo", engine="kernel")] == ["kernel"] * 2
    assert compilers == []
    assert [run("fifo"), run("easy")] == ["kernel", "kernel"]
    assert compilers == [COMPILER]
    first, *later = caplog.messages
    assert first.startswith("The fast engine is being compiled in the background, once.")
    assert all("another process is compiling it" in message for message in later)
    assert len(later) == (large == 0)
    assert not any(tmp_path.rglob("*.nb*"))


def test_a_worker_has_it_compiled_by_another_process_once(
    compilers: list[list[str]], tmp_path: Path
) -> None:
    assert "another process is compiling it" in engines.load()
    assert "another process is compiling it" in engines.load()
    assert compilers == [COMPILER]
    [begun] = tmp_path.rglob("begun")
    os.utime(begun, (0, 0))  # by a process that was killed long ago
    engines.load()
    assert compilers == [COMPILER] * 2


def test_other_processes_name_the_error_of_a_compiler_that_failed(
    compilers: list[list[str]], anew: pytest.MonkeyPatch
) -> None:
    def fail(loop: str) -> None:
        raise ValueError(f"no such type in {loop}")

    assert "another process is compiling it" in engines.load()
    anew.setattr(engines, "_run_rules", fail)
    reason = "numba could not compile it (ValueError: no such type in run_queue)"
    assert reason in engines.warm(["run_queue"])
    compiled.forget()
    assert reason in engines.load()
    anew.setattr(engines, "_run_rules", lambda loop: None)
    assert engines.warm(["run_queue"]) == ""
    compiled.forget()
    assert reason not in compiled.why_not()
    assert compilers == [COMPILER]


def test_a_loop_is_ready_before_the_others(
    compilers: list[list[str]], anew: pytest.MonkeyPatch
) -> None:
    anew.setattr(engines, "_run_rules", lambda loop: None)
    assert engines.warm(["run_queue"]) == ""
    assert [name for name in runner.LOOPS if compiled.is_warm(name)] == ["run_queue"]
    assert (engines.expected_engine("auto", loop="run_queue"), compilers) == ("fast", [])
    assert engines.expected_engine("auto", loop="run_preemption") == "kernel"
    # What is compiled is loaded; the rest is compiled by another process.
    assert (engines.load(), compilers) == ("", [COMPILER])


def test_machine_code_is_of_the_user_and_old_code_is_deleted_after_a_month(
    anew: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("numba")
    anew.delenv("NUMBA_CACHE_DIR", raising=False)
    anew.setenv("XDG_CACHE_HOME", str(tmp_path))
    anew.setenv("LOCALAPPDATA", str(tmp_path))
    anew.setattr(engines, "_run_rules", lambda loop: None)
    for name in ("old", "recent"):
        (tmp_path / "trainyard" / f"trainyard-fast-{name}").mkdir(parents=True)
        (tmp_path / "trainyard" / f"trainyard-fast-{name}" / "used").touch()
    os.utime(tmp_path / "trainyard" / "trainyard-fast-old" / "used", (0, 0))
    assert engines.warm(["run_queue"]) == ""
    own = compiled._folder()
    assert own is not None
    assert {path.name for path in (tmp_path / "trainyard").iterdir()} == {
        own.name,
        "trainyard-fast-recent",
    }


def test_numba_finds_the_code_of_another_checkout(anew: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It looks for code by path and time of the source: those of a copy in the cache folder."""
    pytest.importorskip("numba")
    anew.setattr(compiled, "_bases", lambda: iter([tmp_path]))
    functions = compiled._functions()
    own = compiled._folder()
    assert functions is not None
    assert own is not None
    file = Path(functions["run_queue"].py_func.__code__.co_filename)
    assert (file.parent, file.stat().st_mtime) == (own, 0)
    assert file.read_bytes() == Path(str(queue_loop.__file__)).read_bytes()
    assert Path(functions["run_queue"].stats.cache_path) == own / "__pycache__"


@pytest.mark.usefixtures("compilers")
def test_another_version_of_the_compiler_finds_nothing_compiled(anew: pytest.MonkeyPatch) -> None:
    anew.setattr(engines, "LARGE", 0)
    own = compiled._folder()
    assert own is not None
    (own / "run_queue").touch()
    assert compiled.is_warm("run_queue")
    compiled.forget()
    known = compiled.version
    anew.setattr(compiled, "version", lambda name: "0.1" if name == "numba" else known(name))
    assert compiled._folder() not in (None, own)
    assert run("fifo") == "kernel"


def test_a_compiler_that_does_not_work_leaves_all_runs_to_the_general_engine(
    anew: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("numba")
    anew.setattr(compiled, "_bases", lambda: iter([tmp_path]))
    anew.setattr(compiled, "_NO_REFERENCE_COUNTS", {"unknown_to_this_version": True})
    anew.setattr(engines, "LARGE", 0)
    assert "numba could not compile it" in engines.warm()
    assert run("fifo") == "kernel"


@pytest.mark.usefixtures("fast_engine")
@pytest.mark.parametrize("name", ["fifo", "easy", "srtf", "las:thresholds=600"])
def test_totals_are_those_of_the_summary(name: str) -> None:
    trace = Trace.of(TRACE.frame.drop(columns="cpus"))
    found = run_totals(trace, CLUSTER, make(Spec.parse(name)), Conditions())
    result = engines.simulate(trace, CLUSTER, make(Spec.parse(name)), Conditions(), "kernel")
    summary = metrics.summary(result, trace, CLUSTER)
    same = found.keys() - {"engine", "cpu_s", "peak_rss_mb"}
    assert found["cpu_s"] >= 0
    assert {"jct_p99_s", "queue_mean_s", "utilisation", "makespan_s"} <= same
    assert {key: found[key] for key in same} == pytest.approx({key: summary[key] for key in same})


def test_totals_need_a_run_to_its_end() -> None:
    with pytest.raises(NotPlainError, match="ends at a horizon"):
        run_totals(TRACE, CLUSTER, make(Spec("fifo")), Conditions(horizon_s=100.0))


def test_bare_columns_are_those_of_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    frame = TRACE.frame.drop(columns="cpus").assign(
        submit_time_s=lambda jobs: jobs["submit_time_s"] + 100.0
    )
    frame.to_parquet(path, row_group_size=30)
    found = read_minimal_trace(path)
    for column in ("submit_time_s", "num_gpus", "duration_s", "priority"):
        pd.testing.assert_series_equal(found.frame[column], Trace.of(frame).frame[column])


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"submit_time_s": [5.0, 1.0]}, "not in order of submission"),
        ({"duration_s": [5.0, 0.0]}, "run time outside 0 to"),
        ({"duration_s": [5.0, None]}, "column duration_s has empty cells"),
        ({"num_gpus": [1, -1]}, "fewer than 0 GPUs"),
        ({"cpus": [1.0, 2.0]}, "column cpus would affect the schedule"),
    ],
)
def test_bare_columns_are_not_mended(
    tmp_path: Path, changed: dict[str, list[float]], why: str
) -> None:
    path = tmp_path / "jobs.parquet"
    plain = {"submit_time_s": [0.0, 1.0], "num_gpus": [1, 1], "duration_s": [5.0, 5.0]}
    pd.DataFrame(plain | changed).to_parquet(path)
    with pytest.raises(TraceError, match=why):
        read_minimal_trace(path)


def test_a_text_is_no_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    path.write_text("job_id,num_gpus\n")
    with pytest.raises(TraceError, match="the Parquet file cannot be read"):
        read_minimal_trace(path)


@pytest.mark.usefixtures("fast_engine")
@pytest.mark.parametrize("name", ["easy", "srtf"])
def test_rows_of_jobs_are_those_of_the_record(name: str, tmp_path: Path) -> None:
    source, path = tmp_path / "jobs.parquet", tmp_path / "out.parquet"
    TRACE.frame.drop(columns="cpus").to_parquet(source, row_group_size=30)
    trace = read_minimal_trace(source)
    write = partial(write_jobs, source, trace, path)
    run_totals(trace, CLUSTER, make(Spec(name)), Conditions(), write)
    found = pd.read_parquet(path)
    jobs = engines.simulate(trace, CLUSTER, make(Spec(name)), Conditions(), "kernel").jobs
    jobs = jobs.assign(job_id=TRACE.frame["job_id"], outcome=jobs["outcome"].astype(str))
    pd.testing.assert_frame_equal(
        found, jobs[list(JOB_COLUMNS)], check_dtype=False, check_names=False
    )
    assert pq.ParquetFile(path).num_row_groups == -(-len(trace) // 30)
