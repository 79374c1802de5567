from __future__ import annotations

import pickle

import pytest

from sim.errors import (
    MAX_MESSAGE_LENGTH,
    InfeasiblePlan,
    TraceError,
    TrainyardError,
    shorten_message,
)


def test_a_sentence_of_usual_length_stays_as_it_is() -> None:
    told = "mine.csv: row 7 has no GPU type. Fill it in."
    assert str(TraceError(told)) == told
    assert str(InfeasiblePlan(told, {"free": 3})) == told


def test_a_long_name_is_cut_and_the_way_out_stays() -> None:
    told = str(TraceError(f"{'x' * 13_000}.csv: the file is empty. Choose another file."))
    assert len(told) < 120
    assert told == f"{'x' * 50}…{'x' * 4}.csv: the file is empty. Choose another file."


def test_a_long_list_is_cut_in_the_middle() -> None:
    told = str(
        TrainyardError(
            f"There is no column. Columns found: {', '.join(map(str, range(5000)))}. Choose another"
            " file."
        )
    )
    assert len(told) <= MAX_MESSAGE_LENGTH
    assert told.startswith("There is no column. Columns found: 0, 1, 2, ")
    assert " … " in told
    assert told.endswith("4999. Choose another file.")


@pytest.mark.parametrize(
    ("told", "shown"), [("a\nb\tc", "a b c"), ("a\x1b[2Jb\u202ec", "a\ufffd[2Jb\ufffdc"), ("", "")]
)
def test_a_sentence_is_one_line_of_what_can_be_seen(told: str, shown: str) -> None:
    assert shorten_message(told) == shown


def test_the_whole_text_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(TraceError("y " * 4000)))
    assert len(error.args[0]) == 8000
    assert len(str(error)) <= MAX_MESSAGE_LENGTH
