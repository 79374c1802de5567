from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import trainyard.cli.replay
import trainyard.labs.replays.reading
from tests.trainyard.labs.replays.replay_cases import BOUNDED, SMALL, write
from trainyard.cli.main import main
from trainyard.cli.replay import _unclaimed_points, three_digits
from trainyard.labs.replays.report import ROW_KEYS, Remark, ReplayReport
from trainyard.labs.replays.run import ReplayRun

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    """Replays are those of a folder with two small ones."""
    monkeypatch.setattr(trainyard.labs.replays.reading, "FOLDER", tmp_path)
    trainyard.labs.replays.reading.load.cache_clear()
    write(tmp_path)
    write(
        tmp_path,
        SMALL.replace('name = "small"', 'name = "twin"').replace("jobs=12", "jobs=11"),
        "twin",
    )

    def go(*arguments: str) -> tuple[int, str, str]:
        code = main(("replay", *arguments))
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    yield go  # type: ignore[misc]
    trainyard.labs.replays.reading.load.cache_clear()


def test_json_is_a_list_of_rows_with_exactly_the_promised_keys(call: Call) -> None:
    code, out, err = call("small", "--seeds", "3", "--workers", "1", "--json")
    assert (code, err) == (0, "")
    rows = json.loads(out)
    assert [tuple(row) for row in rows] == [ROW_KEYS] * 3
    assert ROW_KEYS == (
        "replay",
        "metric",
        "published",
        "simulated",
        "ci95",
        "band",
        "verdict",
        "mark",
        "certainty",
        "seeds",
        "cpu_s",
    )
    first, second, third = rows
    assert (first["replay"], first["metric"], first["published"], first["band"]) == (
        "small",
        "jct_mean_s short/fifo",
        0.5,
        [0.01, 1.2],
    )
    assert (first["verdict"], first["mark"], first["seeds"]) == (
        "in",
        "range set after results",
        3,
    )
    assert first["ci95"][0] <= first["simulated"] <= first["ci95"][1]
    assert all(row["cpu_s"] >= 0 for row in rows)
    assert (second["published"], second["verdict"]) == (None, "out")
    assert (third["metric"], third["band"], third["verdict"]) == (
        "preemptions short at per_h=16",
        None,
        "no band",
    )


@pytest.mark.slow
def test_table_for_people_says_published_simulated_and_what_is_known(call: Call) -> None:
    code, out, err = call("all", "--seeds", "2", "--curves")
    assert (code, err) == (0, "")
    small, twin = (
        out.split("\n\n\n")
        if "\n\n\n" in out
        else (out[: out.index("Small (twin)")], out[out.index("Small (twin)") :])
    )
    for name, text in (("small", small), ("twin", twin)):
        assert text.startswith(
            f"Small ({name})\nAnn and Bob: On Queues. Journal, 2020. https://example.org\n"
        )
        assert "Published: Up to twice as fast." in text
        assert "0.5 (up to 50 % shorter)" in text
        assert "0.01 to 1.2 (prototype)" in text
        assert "undecided (range set after results)" in text
        assert "Verdict: 2 not counted, because their range was set after the results." in text
        assert "no band" in text
        assert "Known: All." in text
        assert "Our reading: None." in text
        assert "Notice: It turns around." in text
        assert "Mean JCT, at 4 jobs/h" in text
        assert "2 seeds" in text


def test_remarks_stand_under_the_table_and_never_in_the_json(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(run: ReplayRun) -> ReplayReport:
        return replace(
            run.report(),
            remarks=(
                Remark("Optimal", "HiGHS is missing, so CBC solves the programs.", 3, 3, False),
            ),
        )

    monkeypatch.setattr(trainyard.cli.replay, "_wait_for_report", told)
    code, out, err = call("small", "--seeds", "1")
    assert (code, err) == (0, "")
    assert (
        out.index("verdict")
        < out.index("Remark: Optimal: HiGHS is missing, so CBC solves the programs.")
        < out.index("Known: All.")
    )
    code, out, err = call("small", "--seeds", "1", "--json")
    assert (code, err) == (0, "small: Optimal: HiGHS is missing, so CBC solves the programs.\n")
    assert [tuple(row) for row in json.loads(out)] == [ROW_KEYS] * 3


@pytest.mark.slow
def test_bounds_are_rows_of_the_same_keys_and_values_have_units(call: Call, tmp_path: Path) -> None:
    write(tmp_path, BOUNDED)
    trainyard.labs.replays.reading.load.cache_clear()
    rows = json.loads(call("small", "--seeds", "3", "--curves", "--json")[1])
    assert {tuple(row) for row in rows} == {ROW_KEYS}
    found = {row["metric"]: row for row in rows}
    over = found["makespan_s fifo/least"]
    assert (over["band"], over["verdict"]) == ([1, None], "in")
    for per_h in (4, 8, 16):
        assert 0 < found[f"makespan_s least/fifo at per_h={per_h}"]["simulated"] <= 1
    assert found["jct_mean_s fifo from per_h=4 to per_h=16"]["simulated"] > 1
    out = call("small", "--seeds", "1", "--curves")[1]
    line = next(
        line for line in out.splitlines() if line.startswith("queue_mean_s short, at 16 jobs/h")
    )
    assert re.search(r"\d s ", line)
    assert "above 1 (direction)" in out
    assert re.search(r"jct_mean_s fifo, from 4 to 16 jobs/h +longer ", out)


def test_what_takes_long_is_said_before_it_begins(call: Call, tmp_path: Path) -> None:
    write(tmp_path, 'run_s = 20.0\nbudget = "Slow here."\n' + SMALL)
    trainyard.labs.replays.reading.load.cache_clear()
    code, out, err = call("small", "--seeds", "1", "--workers", "2", "--json")
    assert (code, len(json.loads(out))) == (0, 3)
    assert err == "small: 4 simulations, about 40 s on an idle machine. Slow here.\n"


@pytest.mark.slow
def test_curves_are_rows_too(call: Call) -> None:
    rows = json.loads(call("small", "--seeds", "1", "--curves", "--json")[1])
    names = [row["metric"] for row in rows]
    assert len(names) == len(set(names)) == 3 + 2 * 3 + 2
    assert "jct_mean_s short/fifo at per_h=4" in names
    assert all(row["ci95"] is None for row in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nobody",), "There is no replay 'nobody'. There are: small, twin."),
        (("small", "--seeds", "0"), "--seeds 0: this must be a whole number from 1 to 200"),
        (("small", "--seeds", "201"), "--seeds 201"),
        (("small", "--seeds", "two"), "--seeds two"),
        (("small", "--seeds", "1.5"), "--seeds 1.5"),
        (("small", "--workers", "-1"), "--workers -1: this must be a whole number from 1 to 64"),
        ((), "required"),
        (("small", "--colour"), "--colour"),
    ],
)
def test_bad_input_is_code_2_and_one_sentence(
    call: Call, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_a_broken_file_and_a_failing_cell_are_one_sentence(call: Call, tmp_path: Path) -> None:
    write(tmp_path, SMALL.replace('"allocator=sjf"', '"allocator=recorded"'))
    code, out, err = call("small", "--seeds", "1")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("small, arm calm, seed 0: recorded cannot run here")
    write(tmp_path, "name = ", "broken")
    code, out, err = call("broken")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("broken.toml: ")


def test_points_with_a_claim_are_listed_once() -> None:
    rows = [SimpleNamespace(claim=SimpleNamespace(text=text)) for text in ("at 4", "at 8")]
    assert _unclaimed_points(SimpleNamespace(rows=rows[:1], points=rows)) == rows[1:]


def test_figures_have_three_digits_and_no_exponent() -> None:
    assert [
        three_digits(value) for value in (0.68123, 12.345, 123.6, 45678.9, 0.0, float("nan"))
    ] == [
        "0.681",
        "12.3",
        "124",
        "45,679",
        "0",
        "-",
    ]
