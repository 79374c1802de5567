from __future__ import annotations

import re
from pathlib import Path

import pytest

from sim.errors import ParameterError
from tests.trainyard.labs.replays.replay_cases import SMALL, write
from trainyard.labs.replays.explanation import FIGURE, figures, fill_in
from trainyard.labs.replays.reading import load, names, read_replay
from trainyard.labs.replays.report import CellResult, cells, report
from trainyard.labs.replays.types import ReplayPoint

TEXT = (
    "It is {times jct_mean_s short/fifo}. With 4 {shorter jct_mean_s short/fifo at per_h=4}, alone"
    " {value jct_mean_s fifo}."
)


def unit(metric: str) -> str:
    return {"jct_mean_s": "s", "used": "1"}[metric]


@pytest.mark.parametrize(
    ("figure", "value", "words"),
    [
        ("{times jct_mean_s a/b}", 1.337, "1.34"),
        ("{times jct_mean_s a/b}", 12.34, "12.3"),
        ("{times jct_mean_s a/b}", 123.4, "123"),
        ("{shorter jct_mean_s a/b}", 0.6, "40 % shorter"),
        ("{shorter jct_mean_s a/b}", 1.25, "25 % longer"),
        ("{shorter jct_mean_s a/b}", 1.001, "no longer"),
        ("{shorter jct_mean_s a/b}", 3.0, "3.00 times as long"),
        ("{less jct_mean_s a/b}", 0.97, "3 % less"),
        ("{points used a-b}", 0.16, "16 points more"),
        ("{points used a-b}", -0.011, "1 point fewer"),
        ("{value jct_mean_s a}", 7200.0, "2 h"),
        ("{value used a}", 0.256, "25.6 %"),
    ],
)
def test_numbers_are_written_in_their_form(figure: str, value: float, words: str) -> None:
    assert fill_in(f"So {figure}.", {figure: value}, unit) == f"So {words}."


def test_a_sentence_about_what_was_not_run_is_left_out_and_said_to_be() -> None:
    values = {"{times jct_mean_s short/fifo}": 0.5, "{value jct_mean_s fifo}": 60.0}
    assert (
        fill_in(TEXT, values, unit)
        == "It is 0.50. 1 sentence on points that were not run left out."
    )


def test_a_text_across_lines_has_the_same_numbers() -> None:
    (text,) = figures("So {times jct_mean_s a/b\n  at per_h=4}.")
    assert text == "{times jct_mean_s a/b at per_h=4}"
    assert figures(text)[text].at == ReplayPoint("per_h", 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{often jct_mean_s short/fifo}",
            "'often' is not one of value, times, shorter, less, points",
        ),
        ("{points jct_mean_s short/fifo}", "'points' is not one of"),
        ("{times jct_mean_s short}", "'times' is not one of"),
        ("{times jct_mean_s}", "is not {FORM METRIC ARM/AGAINST at AXIS=VALUE}"),
        ("{times p99_s short/fifo}", "no claim and no curve measures this"),
        ("{times jct_mean_s short/nobody}", "no claim and no curve measures this"),
        ("{times jct_mean_s short/fifo at per_h=5}", "no claim and no curve measures this"),
        ("{times jct_mean_s calm/fifo at per_h=4}", "no claim and no curve measures this"),
    ],
)
def test_a_number_that_no_run_gives_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(message)):
        read_replay(write(tmp_path, SMALL.replace("It turns around.", f"It is {text}.")))


def test_the_numbers_are_those_of_the_run(tmp_path: Path) -> None:
    replay = read_replay(write(tmp_path, SMALL.replace("It turns around.", TEXT)))
    keys = cells(replay).keys
    jct = {"fifo": 200.0, "short": 100.0, "calm": 98.5}
    found = {
        key: CellResult(
            {
                "jct_mean_s": jct[cell.arm],
                "preemptions": 7.0,
                "queue_mean_s": 1.0,
                "cell_cpu_s": 0.2,
            }
        )
        for cell, key in keys.items()
    }
    told = report(replay, keys, found).in_text
    assert fill_in(replay.explain, told, unit) == "It is 0.50. With 4 50 % shorter, alone 3.3 min."
    base = {cell: key for cell, key in keys.items() if not cell.at.axis}
    partial = report(replay, base, {key: found[key] for key in base.values()}).in_text
    assert set(partial) == {"{times jct_mean_s short/fifo}", "{value jct_mean_s fifo}"}


@pytest.mark.parametrize("name", names())
def test_no_simulated_share_stands_in_a_text_as_a_number_of_its_own(name: str) -> None:
    text = " ".join(load(name).explain.split())
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z])", FIGURE.sub("", text))
    loose = [
        one
        for one in sentences
        if re.search(r"\d (%|points)", one) and not re.search("published|abstract|known", one)
    ]
    assert loose == []
