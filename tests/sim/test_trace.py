"""The last border before the simulator: what a trace may hold, and what a refusal says."""

from __future__ import annotations

import dataclasses
from math import inf, nan
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sim.errors import TraceError
from sim.trace import COLUMNS, Trace


def frame(**columns: Any) -> pd.DataFrame:
    plain: dict[str, Any] = {
        "job_id": ["a", "b", "c"],
        "submit_time_s": [5.0, 3.0, 5.0],
        "num_gpus": [1, 2, 4],
        "duration_s": [10.0, 20.0, 30.0],
    }
    return pd.DataFrame(plain | columns)


def test_jobs_are_sorted_and_the_clock_begins_with_the_first() -> None:
    trace = Trace.of(
        frame(
            start_time_s=[6.0, nan, 7.0],
            end_time_s=[16.0, 23.0, 37.0],
            deadline_s=[100.0, 90.0, nan],
        ),
        epoch="2020-01-01T00:00:00",
    )
    # Equal submissions keep their order: b, a, c.
    assert trace.frame["job_id"].tolist() == ["b", "a", "c"]
    assert trace.numbers("submit_time_s").tolist() == [0, 2, 2]
    assert trace.numbers("start_time_s", -1.0).tolist() == [-1, 3, 4]
    assert trace.numbers("end_time_s").tolist() == [20, 13, 34]
    assert trace.numbers("deadline_s", inf).tolist() == [87, 97, inf]
    assert trace.epoch == "2020-01-01T00:00:03"
    assert (len(trace), trace.span_s, trace.gpu_seconds) == (3, 2.0, 2 * 20 + 1 * 10 + 4 * 30)


def test_a_clock_at_zero_is_left_alone() -> None:
    trace = Trace.of(
        frame(submit_time_s=[0.0, 1.0, 2.0], start_time_s=[0.0, 1.0, 2.0]),
        epoch="2020-01-01T00:00:00",
    )
    assert trace.numbers("start_time_s").tolist() == [0, 1, 2]
    assert trace.epoch == "2020-01-01T00:00:00"


def test_columns_are_typed_and_unknown_ones_dropped() -> None:
    trace = Trace.of(
        frame(
            user=["ann", "", None],
            gpu_type=["V100", "a100", nan],
            extra=[1, 2, 3],
            priority=["1", "2", "3"],
            preemptible=[True, False, True],
        )
    )
    assert [column for column in trace.frame.columns if column not in COLUMNS] == []
    assert trace.frame["num_gpus"].dtype == np.int64
    assert trace.numbers("priority").tolist() == [2, 1, 3]
    assert trace.numbers("preemptible").tolist() == [0, 1, 1]
    users = trace.texts("user")
    assert [str(users.categories[code]) for code in users.codes] == ["", "ann", ""]
    assert [str(name) for name in trace.texts("gpu_type")] == ["a100", "v100", ""]
    assert (trace.has("user"), trace.has("vc"), trace.has("name")) == (True, False, False)


def test_a_column_without_a_value_is_not_there() -> None:
    trace = Trace.of(frame(cpus=[nan, nan, nan]))
    assert not trace.has("cpus")
    assert trace.numbers("cpus", 0.0).tolist() == [0, 0, 0]
    assert np.isnan(trace.numbers("mem_gb")).all()
    assert trace.texts("vc", "nobody").tolist() == ["nobody"] * 3
    assert Trace.of(frame(user=["ann", None, "bob"])).texts("user", "ann").tolist() == [
        "ann",
        "ann",
        "bob",
    ]


def test_names_of_types_know_neither_case_nor_blanks() -> None:
    trace = Trace.of(frame(gpu_types_allowed=["V100 | A100", "v100|a100", nan]))
    assert trace.texts("gpu_types_allowed").categories.tolist() == ["v100|a100", ""]


def test_arrays_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Trace.of(frame()).numbers("duration_s")[0] = 1


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (
            {"submit_time_s": [0, nan, 1]},
            (
                "t: row 2 has a submission time that is not a finite number (submit_time_s = nan);"
                " 1 such rows. Correct"
            ),
        ),
        (
            {"submit_time_s": [0, -inf, inf]},
            (
                "t: row 2 has a submission time that is not a finite number (submit_time_s = -inf);"
                " 2 such rows."
            ),
        ),
        (
            {"duration_s": [0, 1, -1]},
            (
                "t: row 1 has a duration that is not a finite number above 0 (duration_s = 0); 2"
                " such rows."
            ),
        ),
        (
            {"duration_s": [1, inf, nan]},
            (
                "t: row 2 has a duration that is not a finite number above 0 (duration_s = inf); 2"
                " such rows."
            ),
        ),
        (
            {"num_gpus": [1, -1, nan]},
            (
                "t: row 2 has a GPU count that is not between 0 and 2147483647 (num_gpus = -1.0); 2"
                " such rows."
            ),
        ),
        (
            {"num_gpus": [1, 1e300, 1]},
            "t: row 2 has a GPU count that is not between 0 and 2147483647",
        ),
        (
            {"num_gpus": [1, 0.5, 1]},
            "t: row 2 asks for 0.5 GPUs. Round fractions up before building a trace.",
        ),
        (
            {"job_id": ["a", "b", "a"]},
            "t: row 3 has an id that an earlier row already has (job_id = a); 1 such rows.",
        ),
        (
            {"cpus": [1, -2, 1]},
            "t: row 2 has a negative or infinite cpus (-2). Correct or drop it.",
        ),
        (
            {"mem_gb": [1, inf, 1]},
            "t: row 2 has a negative or infinite mem_gb (inf). Correct or drop it.",
        ),
        (
            {"min_gpus": [1, 3, 5], "max_gpus": [2, 3, 4]},
            "t: row 3 has min_gpus 5 above max_gpus 4. Swap or correct them.",
        ),
        (
            {"min_gpus": [1, 3, 3]},
            "t: row 2 has min_gpus 3 above num_gpus 2. Swap or correct them.",
        ),
        (
            {"max_gpus": [1, nan, 3]},
            "t: row 3 has num_gpus 4 above max_gpus 3. Swap or correct them.",
        ),
        (
            {"min_batch": [1, 65, nan], "max_batch": [1, 64, 9]},
            "t: row 2 has min_batch 65 above max_batch 64. Swap or correct them.",
        ),
        (
            {"min_batch": [1, 0.5, 1]},
            (
                "t: row 2 has min_batch 0.5, but it must be 1 or more, and finite. Correct it or"
                " leave it empty."
            ),
        ),
        (
            {"max_batch": [1, 1, inf]},
            "t: row 3 has max_batch inf, but it must be 1 or more, and finite.",
        ),
        (
            {"batch_size": [0, 1, 1]},
            "t: row 1 has batch_size 0, but it must be 1 or more, and finite.",
        ),
        (
            {"total_steps": [5, 0.5, 1]},
            "t: row 2 has total_steps 0.5, but it must be 1 or more, and finite.",
        ),
        (
            {"scaling_exponent": [0, 1.5, 1.6]},
            (
                "t: row 3 has scaling_exponent 1.6, but it must be 0 to 1.5. Correct it or leave it"
                " empty."
            ),
        ),
        (
            {"serial_fraction": [0, 1, -0.1]},
            (
                "t: row 3 has serial_fraction -0.1, but it must be 0 to 1. Correct it or leave it"
                " empty."
            ),
        ),
        (
            {"spread_slowdown": [1, 2, 0.5]},
            (
                "t: row 3 has spread_slowdown 0.5, but it must be 1 to 1000. Correct it or leave it"
                " empty."
            ),
        ),
        (
            {"duration_s": ["1", "x", "2"]},
            "t: column duration_s holds something that is not a number",
        ),
        (
            {"time_limit_s": [1, -1, inf]},
            "t: row 2 has a negative or infinite time_limit_s (-1.0). Correct or drop it.",
        ),
    ],
)
def test_a_refusal_says_where_and_what_to_do(columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TraceError) as caught:
        Trace.of(frame(**columns), name="t")
    assert (
        str(caught.value).replace("= 0.0)", "= 0)").replace("(-2.0)", "(-2)").startswith(sentence)
    )


def test_a_missing_column_is_named_beside_those_found() -> None:
    with pytest.raises(
        TraceError,
        match=(
            r"t: column num_gpus is missing\. Columns found: job_id, submit_time_s, duration_s\."
            r" Map one of them to it\."
        ),
    ):
        Trace.of(frame().drop(columns="num_gpus"), name="t")


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(TraceError, match="t: no jobs are left"):
        Trace.of(frame().iloc[:0], name="t")


def test_an_unlimited_time_limit_is_one() -> None:
    assert Trace.of(frame(time_limit_s=[1, inf, nan])).numbers("time_limit_s", inf).tolist() == [
        inf,
        1,
        inf,
    ]


def test_what_is_not_given_of_scaling_is_not_checked() -> None:
    trace = Trace.of(
        frame(
            min_gpus=[nan, 0, 4],
            max_gpus=[1, nan, 4],
            min_batch=[9, nan, 9],
            max_batch=[nan, 1, 9],
            scaling_exponent=[0, 1.5, nan],
        )
    )
    assert trace.numbers("min_gpus", -1.0).tolist() == [0, -1, 4]
    assert trace.numbers("scaling_exponent", -1.0).tolist() == [1.5, 0, -1]
    assert not trace.has("serial_fraction")


class TestDigest:
    def test_it_is_of_the_jobs_only(self) -> None:
        assert (
            Trace.of(frame(), name="one").digest
            == Trace.of(frame(), name="two", epoch="2020-01-01").digest
        )
        assert Trace.of(frame()).digest == Trace.of(frame(submit_time_s=[15.0, 13.0, 15.0])).digest

    @pytest.mark.parametrize(
        "other",
        [
            {"duration_s": [10.0, 20.0, 31.0]},
            {"job_id": ["a", "b", "d"]},
            {"user": ["x", "y", "z"]},
            {"name": ["x", "y", "z"]},
            {"vc": ["x", "y", "z"]},
            {"cpus": [0, 0, 0]},
        ],
    )
    def test_everything_else_counts(self, other: dict[str, Any]) -> None:
        assert Trace.of(frame()).digest != Trace.of(frame(**other)).digest

    def test_codes_and_names_of_a_category_both_count(self) -> None:
        variants = [
            Trace.of(frame(user=users)).digest
            for users in (["x", "y", "x"], ["y", "x", "y"], ["x", "x", "y"], ["x", "z", "x"])
        ]
        assert len(set(variants)) == 4

    def test_texts_are_hashed_with_a_separator_also_in_chunks(self) -> None:
        name = ["é", nan, "b\x1fc"]
        chunks = pa.chunked_array([["é"], [None, "b\x1fc"]], pa.large_string())
        in_chunks = pd.Series(
            pd.arrays.ArrowStringArray(chunks, dtype=pd.StringDtype(na_value=nan))
        )
        for values in (name, in_chunks):
            digest = Trace.of(frame(name=values, submit_time_s=[1.0, 2.0, 3.0])).digest
            assert digest == "ab7c7c61ec6793864cab7b61dc84211c"

    def test_odd_letters_do_no_harm(self) -> None:
        assert Trace.of(frame(user=["é", "ä", "日"], name=["=1+1", "", nan])).digest

    def test_a_trace_is_frozen(self) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            Trace.of(frame()).name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("submit_s", [1e13, 1e300])
def test_a_clock_that_begins_after_all_calendars_is_refused(submit_s: float) -> None:
    frame = pd.DataFrame(
        {"job_id": ["a"], "submit_time_s": [submit_s], "num_gpus": [1], "duration_s": [1.0]}
    )
    with pytest.raises(
        TraceError, match=r"submitted 1e\+\d+ s after 2020-01-01, which no calendar holds"
    ):
        Trace.of(frame, epoch="2020-01-01")
