"""Traces of Gavel and Shockwave: tab-separated ``.trace`` files without a header, in four layouts,
and the list of the physical experiments.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from sim.perf.lookup import RELATIVE, Combination, Finder
from sim.perf.measured import ANY_BATCH, ProfileTable, built_in, split_name
from sim.perf.profiles import plain
from sim.readers.cells import names, numbers, text
from sim.readers.format import Draft, Format, ReadOptions
from sim.readers.report import Report
from sim.readers.sniff import Sample
from sim.readers.source import Content
from sim.readers.table import ignored, pick, read_table

MEASURED_ON: Final = "v100"
_HEAD: Final = (
    "job_type",
    "command",
    "working_directory",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "scale_factor",
)
LAYOUTS: Final[Mapping[int, tuple[str, ...]]] = {
    6: ("job_type", "command", "num_steps_arg", "total_steps", "arrival_time", "scale_factor"),
    7: (
        "job_type",
        "command",
        "num_steps_arg",
        "needs_data_dir",
        "total_steps",
        "arrival_time",
        "scale_factor",
    ),
    10: (*_HEAD, "priority_weight", "slo", "arrival_time"),
    12: (*_HEAD, "mode", "priority_weight", "slo", "duration", "arrival_time"),
}
"""Number of fields -> what they are: Gavel of 2019, its Philly files, Gavel as published,
Shockwave.
"""
LIST: Final = (
    "trace",
    "job_id",
    "model",
    "batch_size",
    "scale_factor",
    "total_steps",
    "arrival_time_s",
)
FIGURES: Final = frozenset(
    {"total_steps", "scale_factor", "arrival_time", "priority_weight", "slo", "duration"}
)
READ: Final = FIGURES | {"job_type", "command", "mode"}
STATIC: Final = "static"
_SHORT: Final = 3  # figures of the layouts that need all of them to be recognised
_IN_COMMAND: Final = re.compile(r"(?:--?batch_size|\s-b)[ =](\d+)")


def matches(sample: Sample) -> bool:
    """Recognise a trace by its first line, the list by its columns."""
    if sample.kind != "text":
        return False
    layout = LAYOUTS.get(len(sample.cells), ()) if sample.delimiter == "\t" else ()
    known = dict(zip(layout, sample.cells, strict=False))
    return _is_row(known) if known else set(LIST) <= sample.keys


def load(content: Content, options: ReadOptions) -> Draft:
    """Read a trace; it holds no run times, which are computed.

    Parameters
    ----------
    content : Content
        Tab-separated text, or the list of the physical experiments.
    options : ReadOptions
        Holds the limits.

    Raises
    ------
    TraceError
        If it is neither.
    """
    sample = content.sample
    if sample.delimiter == "\t" and len(sample.cells) in LAYOUTS and not set(LIST) <= sample.keys:
        frame, report = _without_header(content, options)
        jobs = pd.DataFrame({"job_id": (frame.index - 1).astype("str")}, index=frame.index)
        report.guess(
            "There is no header; the layout is recognised by the number of fields. Jobs are"
            " numbered from 0."
        )
        types = _types(
            text(frame["job_type"]), text(frame["command"]), pd.Series(np.nan, index=frame.index)
        )
    else:
        frame, report = read_table(content, options, set(LIST))
        cells = pick(frame, {column: column for column in LIST}, content.name)
        ignored(frame, {column: column for column in LIST}, report)
        frame = cells.rename(columns={"arrival_time_s": "arrival_time"})
        jobs = _listed(frame, report)
        types = _types(
            text(frame["model"]), pd.Series("", index=frame.index), numbers(frame["batch_size"])
        )
    figures = pd.DataFrame(
        {column: numbers(frame[column]) for column in FIGURES if column in frame}, index=frame.index
    )
    jobs = jobs.assign(
        submit_time_s=figures["arrival_time"],
        num_gpus=figures["scale_factor"],
        total_steps=figures["total_steps"],
    )
    jobs = _timed(jobs.join(types), figures.get("duration"), report)
    if "priority_weight" in figures:
        jobs["priority"] = figures["priority_weight"]
    if "slo" in figures:
        # Upstream multiplies by the duration on a V100 and adds the arrival; a negative one stands
        # for none.
        jobs["deadline_s"] = jobs["submit_time_s"] + (figures["slo"] * jobs["duration_s"]).where(
            figures["slo"] > 0
        )
    if "mode" in frame:
        changing = int((~text(frame["mode"]).str.lower().isin(["", STATIC])).sum())
        if changing:
            jobs_change = f"{changing:,} jobs change their" if changing > 1 else "1 job changes its"
            report.guess(
                f"{jobs_change} batch size while training (mode accordion or gns), which is read as"
                " staying the same."
            )
    return Draft(
        jobs,
        report,
        raw={
            "submit_time_s": frame["arrival_time"],
            "num_gpus": frame["scale_factor"],
            "duration_s": frame["total_steps"],
        },
    )


def _is_row(cells: Mapping[str, str]) -> bool:
    figures = [
        bool(re.fullmatch(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", cells[column]))
        for column in FIGURES
        if column in cells
    ]
    # In the long layouts one damaged figure makes a row to be dropped, not a file that nobody can
    # tell.
    return (
        figures.count(False) <= (len(figures) > _SHORT)
        and cells.get("needs_data_dir", "0") in {"0", "1"}
        and not re.fullmatch(r"[\d.]*", cells["job_type"])
    )


def _without_header(content: Content, options: ReadOptions) -> tuple[pd.DataFrame, Report]:
    header = "\t".join(LAYOUTS[len(content.sample.cells)]) + "\n"
    data = content.data.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    return read_table(replace(content, data=header.encode(content.encoding) + data), options, READ)


def _listed(frame: pd.DataFrame, report: Report) -> pd.DataFrame:
    traces, ids = text(frame["trace"]), names(frame["job_id"])
    found = list(traces.unique())
    if len(found) > 1:
        report.warnings.append(
            f"The file holds {len(found)} traces, read as one: {', '.join(found[:10])}. Each is a"
            " virtual cluster (vc) of its own."
        )
        ids = traces + "/" + ids
    return pd.DataFrame({"job_id": ids, "vc": traces})


def _types(job_types: pd.Series, commands: pd.Series, batch: pd.Series) -> pd.DataFrame:
    """Return model and batch size of one GPU, as the type names it, else the list, else the
    command.
    """
    codes, distinct = pd.factorize(job_types)
    parts = [split_name(str(name)) for name in distinct]
    model = pd.Series([parts[code][0] for code in codes], index=job_types.index, dtype="str")
    named = pd.Series([parts[code][1] for code in codes], index=job_types.index, dtype=np.float64)
    in_command = numbers(commands.str.extract(_IN_COMMAND.pattern, expand=False))
    return pd.DataFrame({"model": model, "batch_size": named.fillna(batch).fillna(in_command)})


class _Timing(NamedTuple):
    """What the table of throughputs says of one kind of job."""

    throughput: float
    batch: float
    assumed: Sequence[str] = ()


def _timed(jobs: pd.DataFrame, stated: pd.Series | None, report: Report) -> pd.DataFrame:
    """Add durations, the GPU type that they hold for, and batch sizes where nothing names them."""
    table = built_in("simulation")
    kinds = jobs[["model", "batch_size", "num_gpus"]].astype({"model": "object"})
    codes = (
        kinds.groupby(["model", "batch_size", "num_gpus"], dropna=False, sort=False)
        .ngroup()
        .to_numpy()
    )
    first = np.unique(codes, return_index=True)[1]
    found = [_timing(table, *row) for row in kinds.iloc[first].itertuples(index=False)]
    timing = pd.DataFrame(
        [found[code] for code in codes], columns=list(_Timing._fields), index=jobs.index
    )
    computed = jobs["total_steps"] / timing["throughput"]
    duration = computed if stated is None else stated.fillna(computed)
    guessed = (
        computed.notna()
        & timing["assumed"].map(lambda found: "model" in found)
        & (stated is None or stated.isna())
    )
    report.alter(jobs, guessed, _NOT_MEASURED, jobs["model"])
    if guessed.any():
        report.guess(
            "Of models that Gavel's table lacks total_steps count, not the guessed duration, under"
            " a profile that has them, or a stand-in."
        )
    for key, reason in _ASSUMED.items():
        report.alter(
            jobs,
            duration.notna() & timing["assumed"].map(lambda found, key=key: key in found),
            reason,
            timing["batch"].map("{:g}".format),
        )
    report.guess(
        f"Durations are total_steps / the throughput on a {MEASURED_ON.upper()} in Gavel's"
        " simulation table; batch_size is that of one GPU."
        if stated is None
        else (
            f"Durations are those of the file, taken for a {MEASURED_ON.upper()}; batch_size is"
            " that of one GPU."
        )
    )
    batch = jobs["batch_size"].fillna(timing["batch"].where(timing["batch"] > 0))
    return jobs.assign(duration_s=duration, batch_size=batch, gpu_type=MEASURED_ON)


_NOT_MEASURED: Final = (
    "the model is not in Gavel's table: its duration is guessed at the median throughput"
)
_ASSUMED: Final[Mapping[str, str]] = {
    "none": "no batch size is named: taken as the middle one measured",
    "batch": "this batch size was not measured: the throughput of the nearest is taken",
    "gpus": "this number of GPUs was not measured: the throughput per GPU of fewer is taken",
}


def _timing(table: ProfileTable, model: str, batch: float, gpus: float) -> _Timing:
    if not np.isfinite(gpus):
        return _Timing(np.nan, np.nan)
    known = table.batches(plain(model))
    if not known:
        return _Timing(_median(table, gpus), np.nan, ("model",))
    silent = bool(np.isnan(batch)) and known != (ANY_BATCH,)
    size = known[len(known) // 2] if silent else batch
    found = Finder(table, RELATIVE, MEASURED_ON, {}).find(
        Combination(model, size, max(1, int(np.ceil(gpus)))), MEASURED_ON
    )
    return _Timing(
        found.measured.together,
        size if silent else np.nan,
        (*found.assumed, "none") if silent else found.assumed,
    )


def _median(table: ProfileTable, gpus: float) -> float:
    each = [
        _timing(table, model, batch or np.nan, gpus).throughput
        for model in table.models
        for batch in table.batches(model)
    ]
    return float(np.median(each))


GAVEL: Final = Format("gavel", "Gavel or Shockwave (.trace)", matches, load)
