"""Figures of published files and exports, worked out from the raw files without any reader."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from pathlib import Path

import pandas as pd
import pytest

from jobtraces import FORMATS, Import, ReadOptions, read
from sim.errors import TraceError
from tests.jobtraces.readers.account import checked, reasons, row
from tests.shared import ROOT, shared

TABLE = "data/imports/golden_imports.csv"
Check = tuple[str, str, str, str]
# What no reader takes yet must be refused, not read wrong.
REFUSED: tuple[str, ...] = ()
# Descriptions of clusters are no traces.
CLUSTERS = ("nodes", "pai-machines", "philly-machines", "vc-nodes", "slurm-nodes", "cluster")
# The table says that no job of this file names a GPU, but 753 of its rows do.
DOUBTFUL = "dirlab_unified_csv/blue_waters_data_training.csv"
# Formats give other reasons than the table, which knows no jobs that still wait.
SAME = {
    "the job never started": (
        "the duration is missing or cannot be read",
        "the job had not started when the trace ends",
    )
}


def figures() -> dict[tuple[str, str], list[Check]]:
    found: dict[tuple[str, str], list[Check]] = defaultdict(list)
    if (ROOT / TABLE).exists():
        with (ROOT / TABLE).open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                key = (line["file"], line["recipe"])
                found[key].append((line["check"], line["job"], line["field"], line["value"]))
    return found


FIGURES = figures()


def of(kind: str) -> list[tuple[str, str]]:
    chosen: dict[str, list[tuple[str, str]]] = {"trace": [], "refused": [], "cluster": []}
    for file, recipe in FIGURES:
        if file == DOUBTFUL:
            continue
        refused = recipe in {"ask", "refuse"} or Path(file).name in REFUSED
        group = "refused" if refused else "cluster" if recipe in CLUSTERS else "trace"
        chosen[group].append((file, recipe))
    return chosen[kind]


def located(file: str) -> Path:
    return shared(f"data/imports/{file}" if file.startswith("made_exports/") else f"traces/{file}")


def test_the_table_of_figures_is_there() -> None:
    shared(TABLE)
    assert (len(of("trace")), len(of("refused")), len(of("cluster"))) == (43, 8, 8)


@pytest.mark.parametrize(("file", "recipe"), of("trace"))
def test_figures(file: str, recipe: str) -> None:
    keep = "keep" if "cpu_jobs=keep" in recipe else "drop"
    got = checked(located(file), options=ReadOptions(cpu_jobs=keep))
    if recipe in FORMATS and recipe != "itp":
        assert got.fmt == recipe
    wrong = [
        (check, told)
        for check in FIGURES[file, recipe]
        if not fits((told := figure(got, *check[:3])), check[3])
    ]
    assert wrong == []


def fits(told: float | str | None, value: str) -> bool:
    if told is None or isinstance(told, str):
        return told is None or told == value
    return math.isclose(told, float(value), rel_tol=1e-6, abs_tol=1e-3)


def figure(got: Import, check: str, job: str, field: str) -> float | str | None:
    """Return what was read for one figure, None where a trace does not keep it."""
    if check == "left_out":
        found = reasons(got)
        reason = next((one for one in (field, *SAME.get(field, ())) if one in found), field)
        return float(found.get(reason, 0))
    if check == "row":
        return of_job(got, job, field)
    return {
        "count": lambda: float(getattr(got, field)),
        "status": lambda: float((got.trace.frame["status"] == field).sum()),
        "span": lambda: got.trace.span_s,
        "epoch": lambda: pd.Timestamp(got.trace.epoch).timestamp(),
        "sum": lambda: total(got, field),
    }[check]()


def of_job(got: Import, job: str, field: str) -> float | str | None:
    # The reader of Gavel's files counts jobs from 0, as Gavel does.
    one = row(got, str(int(job[4:]) - 1) if got.fmt == "gavel" else job)
    if field == "gpus_asked":
        return float(one["num_gpus"]) if one["num_gpus"] > 1 else None
    return one[field] if isinstance(one[field], str) else float(one[field])


def total(got: Import, field: str) -> float | None:
    frame = got.trace.frame
    if field == "gpu_seconds_asked":
        return got.load_before_gpu_s
    if field == "gpus_asked":
        # Fractions are rounded up in a trace; the load before tells how many were asked for.
        rounded = got.load_before_gpu_s < got.load_after_gpu_s
        return None if rounded else float(frame["num_gpus"].sum())
    return float(frame["num_gpus" if field == "gpus_whole" else field].sum())


@pytest.mark.parametrize(("file", "recipe"), of("refused"))
def test_refused_with_one_sentence(file: str, recipe: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(located(file))
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
