"""The commands `sweep` and `plan`: tables and JSON, going on where it stopped, estimates, bad
input, interruptions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from trainyard.cli.main import main
from trainyard.runs import batch
from trainyard.runs.task import Baggage, Numbers, run_numbers

Call = Callable[..., tuple[int, str, str]]
STUDY = {
    "base": {"trace": "sample:tiny", "cluster": "2x8:v100"},
    "allocators": ["fifo", "srtf", "recorded"],
    "repeats": 3,
}
PLAIN = {"base": {"trace": "sample:tiny", "cluster": "2x8:v100"}, "allocators": ["fifo", "srtf"]}
SWEEP_KEYS = {
    "id",
    "state",
    "error",
    "sweep",
    "known_before",
    "metric",
    "verdict",
    "curves",
    "baseline",
    "differences",
    "failed",
    "runs",
}
PLAN_KEYS = {"id", "state", "error", "question", "answers", "readings", "left_out"}
ANSWER_KEYS = {
    "policy",
    "size",
    "usd_per_h",
    "usd_per_month",
    "nearest",
    "fewer",
    "runs",
    "assumed",
    "over",
    "failed",
    "why",
    "now",
    "best",
    "alone",
}


LOADS = ("sweep", "study.json", "--axis", "trace.load=0.8..1.2:3", "--executor", "inline")


@dataclass(frozen=True)
class Kept:
    """One store for all tests, so that runs are made once: with a question, and then the sweep
    `LOADS`, which found nothing there of what it asks for.
    """

    store: Path
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = tmp_path_factory.mktemp("kept")
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch:
        _settle(patch, folder, folder / "store")
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            assert (
                main(
                    (
                        "plan",
                        "plain.json",
                        "--range",
                        "1..1",
                        "--target",
                        "queue_mean_s<=600",
                        "--executor",
                        "inline",
                        "--no-check",
                    )
                )
                == 0
            )
        with redirect_stdout(out), redirect_stderr(err):
            code = main(LOADS)
    return Kept(folder / "store", code, out.getvalue(), err.getvalue())


def _settle(patch: pytest.MonkeyPatch, folder: Path, store: Path) -> None:
    patch.chdir(folder)
    patch.setenv("TRAINYARD_STORE", str(store))
    patch.delenv("TRAINYARD_DATABASE", raising=False)
    Path("study.json").write_text(json.dumps(STUDY))
    Path("plain.json").write_text(json.dumps(PLAIN))


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> Call:
    _settle(monkeypatch, tmp_path, kept.store)

    def go(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return go


def test_a_sweep_is_a_table_with_what_failed_and_then_nothing_is_run_again(
    kept: Kept, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = kept.out
    assert kept.code == 0
    assert kept.err.startswith("At most 27 runs of 12 jobs, about ")
    lines = out.splitlines()
    assert lines[0].startswith("Average completion time (id ")
    assert lines[1].split() == ["trace.load", "FIFO", "SRTF", "Recorded", "schedule"]
    assert [line.split()[0] for line in lines[2:5]] == ["0.8", "1.0", "1.2"]
    assert lines[2].endswith("- (3 failed)")
    assert "6 runs failed: recorded cannot run here: " in out
    assert "27 runs, 0 of them stored before" in out
    monkeypatch.setattr(batch, "run_numbers", None)
    code, out, err = call(
        "sweep",
        "plain.json",
        "--set",
        "repeats=3",
        "--axis",
        "trace.load=0.8..1.2:3",
        "--metric",
        "utilisation",
        "--executor",
        "inline",
    )
    assert (code, err) == (0, "")
    assert "18 runs, 18 of them stored before" in out
    assert out.startswith("GPUs busy (id ")


def test_the_table_has_bands_and_changes_against_the_baseline(call: Call) -> None:
    code, out, _ = call(
        "sweep",
        "plain.json",
        "--set",
        "repeats=3",
        "--set",
        "estimator=noisy:sigma=1",
        "--axis",
        "trace.load=2,3",
        "--executor",
        "inline",
    )
    assert code == 0
    values, changes, said = (block.splitlines() for block in out.split("\n\n"))
    assert all(" .. " in line for line in values[2:])
    assert changes[:2] == ["Change against FIFO, repeat by repeat", "trace.load  SRTF"]
    body = json.loads(call("sweep", "--resume", "--executor", "inline", "--json")[1])
    for line, row in zip(changes[2:], body["differences"], strict=True):
        shown = [
            float(text.strip("%() "))
            for text in (
                line.split(maxsplit=1)[1]
                .replace("%", "")
                .replace("(", "..")
                .replace(")", "")
                .split("..")
            )
        ]
        assert shown == pytest.approx(
            [100 * row[name] for name in ("value", "low", "high")], abs=0.051
        )
    assert said[0].startswith("Lowest average completion time: ")


def test_runs_that_fail_end_with_1_and_a_sentence_unless_their_policy_refuses(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(document: Mapping[str, Any], address: str, baggage: Baggage) -> Numbers:
        if document["seed"] == 701:
            raise MemoryError
        return run_numbers(document, address, baggage)

    monkeypatch.setattr(batch, "run_numbers", broken)
    code, out, err = call("sweep", "plain.json", "--axis", "seed=700,701", "--executor", "inline")
    assert code == 1
    assert "2 runs failed: " in out
    assert err.splitlines()[-1].startswith(
        "2 runs of 4 failed; see the reasons above. To repeat them: --resume "
    )


def test_of_a_large_sweep_the_time_is_told_before_anything_is_looked_up(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.cli.sweep.MAX_LOOKED_UP", 1)
    monkeypatch.setattr("trainyard.cli.sweep.LONG_S", 0.001)
    monkeypatch.setattr("trainyard.sweeps.sweep_run.scenario_key", None)
    code, out, err = call("sweep", "plain.json", "--axis", "seed=500", "--executor", "inline")
    assert (code, out) == (2, "")
    assert err.splitlines()[0].startswith("At most 2 runs of 12 jobs")
    assert "Add --yes to start" in err


def test_the_json_of_a_sweep_holds_everything(call: Call) -> None:
    code, out, _ = call(*LOADS, "--json")
    body = json.loads(out)
    assert code == 0
    assert set(body) == SWEEP_KEYS
    assert (
        body["state"],
        body["error"],
        body["metric"],
        body["baseline"],
        body["known_before"],
    ) == ("done", "", "jct_mean_s", "FIFO", 21)
    assert len(body["runs"]) == 27
    assert {
        "point",
        "trace.load",
        "policy",
        "repeat",
        "key",
        "error",
        "jct_mean_s",
        "queue_p95_s",
    } <= set(body["runs"][0])
    assert [one["runs"] for one in body["failed"]] == [6]
    failed = [row for row in body["runs"] if row["error"]]
    assert all(
        row["jct_mean_s"] is None and row["error"] == body["failed"][0]["why"] for row in failed
    )
    assert [row["failed"] for row in body["curves"] if row["policy"] == "Recorded schedule"] == [
        3,
        0,
        3,
    ]
    assert {row["policy"] for row in body["differences"]} == {"SRTF", "Recorded schedule"}
    assert all(
        row["low"] <= row["value"] <= row["high"]
        for row in body["differences"]
        if row["value"] is not None
    )


def test_draws_tables_as_values_and_sweeps_in_files(call: Call) -> None:
    sweep = {
        "kind": "sweep",
        "study": PLAIN,
        "axes": {"cluster": ["2x8:v100", {"groups": [{"count": 1, "gpus": 8, "gpu_type": "k80"}]}]},
    }
    Path("sweep.json").write_text(json.dumps(sweep))
    code, out, _ = call(
        "sweep",
        "sweep.json",
        "--axis",
        "seed=0..20:21",
        "--draw",
        "2",
        "--executor",
        "inline",
        "--json",
    )
    assert (code, len(json.loads(out)["runs"])) == (0, 4)
    code, out, _ = call("sweep", "sweep.json", "--executor", "inline")
    assert code == 0
    assert '"gpu_type":"k80"' in out


def test_interrupted_is_130_and_resume_goes_on_with_the_last_or_the_named_one(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("sweep", "plain.json", "--axis", "seed=100..109:10", "--executor", "inline")
    done = 0

    def some(document: Mapping[str, Any], address: str, baggage: Baggage) -> Numbers:
        nonlocal done
        done += 1
        return run_numbers(document, address, baggage)

    def pressed(run: Any, timeout_s: float | None = None) -> bool:
        if timeout_s is not None and not run._stop.is_set():
            while done < 3:
                run._over.wait(0.01)
            raise KeyboardInterrupt
        return bool(run._over.wait(timeout_s))

    with monkeypatch.context() as patch:
        patch.setattr(batch, "run_numbers", some)
        patch.setattr("trainyard.runs.batch.RunBatch.wait", pressed)
        code, out, err = call(*arguments, "--json")
    body = json.loads(out)
    assert (code, body["state"]) == (130, "cancelled")
    assert (
        err.splitlines()[-1]
        == f"Interrupted; finished runs are kept. Continue with: --resume {body['id'][:12]}."
    )
    assert 3 <= len(body["runs"]) < 20
    again = json.loads(call("sweep", "--resume", "--executor", "inline", "--json")[1])
    assert (again["id"], again["known_before"], len(again["runs"])) == (
        body["id"],
        len(body["runs"]),
        20,
    )
    assert json.loads(call("sweep", "--resume", body["id"][:8], "--json")[1])["known_before"] == 20


def test_a_search_is_a_table_and_json_and_leaves_recordings_out(call: Call) -> None:
    arguments = (
        "plan",
        "study.json",
        "--set",
        "repeats=1",
        "--range",
        "0..4",
        "--target",
        "queue_mean_s<=600",
        "--executor",
        "inline",
    )
    code, out, err = call(*arguments)
    assert code == 0
    assert "Recorded schedule is left out: It does not depend on cluster or load" in err
    lines = out.splitlines()
    assert lines[0].startswith("Average wait to start at most 10 min, v100 (id ")
    assert [line.split()[0] for line in lines[2:4]] == ["FIFO", "SRTF"]
    assert (
        "FIFO: no figure at 1 size. The cluster has no nodes. Add a row with at least one node."
        in out
    )
    body = json.loads(call(*arguments, "--json")[1])
    assert set(body) == PLAN_KEYS
    assert all(set(answer) == ANSWER_KEYS for answer in body["answers"])
    assert list(body["left_out"]) == ["Recorded schedule"]
    assert [answer["size"] for answer in body["answers"]] == [
        [int(line.split()[1])] for line in lines[2:4]
    ]
    assert json.loads(call("plan", "--resume", "--json")[1])["answers"] == body["answers"]


def test_a_target_that_nothing_meets_tells_the_best_reached(call: Call) -> None:
    code, out, _ = call(
        "plan",
        "plain.json",
        "--range",
        "1..2",
        "--target",
        "jct_mean_s<=1",
        "--executor",
        "inline",
        "--no-check",
    )
    assert code == 0
    assert "FIFO: no size in the range meets the target. Best: 2" in out
    mix = (
        "plan",
        "plain.json",
        "--set",
        "cluster=1x8:v100,1x8:k80",
        "--group",
        "0",
        "--group",
        "1",
        "--range",
        "0..1",
        "--range",
        "0..1",
    )
    code, out, _ = call(
        *mix, "--target", "queue_mean_s<=3600", "--budget", "25", "--executor", "inline"
    )
    assert code == 0
    assert "Assumption: fewer nodes of every type" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sweep"], "Name a file"),
        (["sweep", "nowhere.json"], "cannot be read"),
        (["sweep", "plain.json"], "Nothing varies"),
        (
            ["sweep", "plain.json", "--axis", "nonsense=1,2"],
            "No run of this sweep is possible. The scenario has no setting 'nonsense'.",
        ),
        (
            ["sweep", "plain.json", "--axis", "allocators.5.backfill=first_fit"],
            "The axis allocators.5.backfill=first_fit: there are 2 entries, numbered from 0",
        ),
        (
            [
                "sweep",
                "plain.json",
                "--axis",
                "seed=7",
                "--whole",
                "--executor",
                "dask://nowhere:1",
            ],
            "Workers on other machines cannot write whole results",
        ),
        (["sweep", "plain.json", "--axis", "seed=0..1e9:999999"], "cannot run from"),
        (["sweep", "plain.json", "--axis", "seed=0..99999:60000"], "more than 100,000"),
        (
            ["sweep", "plain.json", "--axis", "seed=1", "--metric", "speed"],
            "there is no such metric",
        ),
        (
            ["sweep", "plain.json", "--axis", "seed=1", "--executor", "cloud"],
            "'cloud' is not an executor",
        ),
        (["sweep", "plain.json", "--axis", "seed=1", "--draw", "many"], "not a number"),
        (["sweep", "plain.json", "--resume"], "Leave one of both out"),
        (["sweep", "--resume", "--axis", "seed=1"], "--axis has no effect"),
        (["sweep", "--resume", "--set", "repeats=5"], "--set has no effect"),
        (["sweep", "--resume", "--draw", "3"], "--draw has no effect"),
        (["plan", "--resume", "--no-check"], "--no-check has no effect"),
        (
            ["plan", "plain.json", "--range", "1..2", "--budget", "0.01"],
            "Even the fewest nodes make the cluster cost",
        ),
        (["sweep", "--resume", "nothing"], "No item of the library has the name or id 'nothing'"),
        (["plan", "plain.json"], "The search needs node limits"),
        (["plan", "plain.json", "--range", "2"], "the form is LOW..HIGH"),
        (["plan", "plain.json", "--range", "1..99999"], "at most 10,000 sizes"),
        (
            ["plan", "plain.json", "--range", "1..2", "--target", "queue_mean_s>=5"],
            "lower values of this metric are better",
        ),
        (
            ["plan", "plain.json", "--range", "1..2", "--target", "queue_mean_s<=inf"],
            "finite number",
        ),
        (["plan", "plain.json", "--range", "1..2", "--group", "7"], "numbered from 0 to 0"),
        (
            ["plan", "plain.json", "--range", "1..2", "--set", 'allocators=["recorded"]'],
            "No policy of this study",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(call: Call, words: list[str], said: str) -> None:
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]
    assert err.strip().endswith(".")


def test_what_is_estimated_to_take_long_wants_a_yes(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.runs.estimate.RUN_S", 400.0)  # two runs: over 10 minutes
    arguments = ("sweep", "plain.json", "--axis", "seed=500", "--executor", "inline")
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert "Add --yes to start" in err
    assert call(*arguments, "--yes")[0] == 0


def test_machines_that_are_lost_end_with_1_and_the_way_to_go_on(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.runs.executors._CONNECT_S", 0.3)
    pytest.importorskip("distributed", reason="Dask is an extra (requirements-scale.txt)")
    code, _, err = call(
        "sweep", "plain.json", "--axis", "seed=900", "--executor", "dask://127.0.0.1:1"
    )
    assert code == 1
    assert "No Dask scheduler answers at 127.0.0.1:1 (" in err
    assert "Continue with: --resume " in err
