"""The validated table of jobs; the row number of a job is its id everywhere else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sim.clock import LATEST_S, instants
from sim.errors import TraceError

REQUIRED: Final = ("job_id", "submit_time_s", "num_gpus", "duration_s")
ROLE_COLUMNS: Final = (
    "workers",
    "servers",
    "worker_cpus",
    "worker_mem_gb",
    "server_cpus",
    "server_mem_gb",
    "asynchronous",
    "worker_mem_need_gb",
    "server_mem_need_gb",
    "server_mem_growth_gb",
    "predictable_after",
)
"""Columns of jobs with workers and parameter servers: composition, memory, predictability."""
SCHEDULER_NUMBERS: Final = (
    "nodes",
    "tasks",
    "tasks_per_node",
    "cpus_per_task",
    "mem_per_node_gb",
    "mem_per_cpu_gb",
    "gpu_fraction",
    "gpu_mem_gb",
    "begin_s",
    "nice",
    "site_priority",
    "requeue",
    "requeues",
)
"""Numeric scheduler options beyond GPUs, cores and memory of the whole job."""
SCHEDULER_TEXTS: Final = (
    "account",
    "qos",
    "constraint",
    "gres",
    "exclusive",
    "reservation",
    "dependency",
    "array",
    "durations_by_type",
    "node_list",
)
"""Text scheduler options as the scheduler writes them, and records of the run."""
NUMBERS: Final = (
    "submit_time_s",
    "num_gpus",
    "duration_s",
    "start_time_s",
    "end_time_s",
    "batch_size",
    "total_steps",
    "min_gpus",
    "max_gpus",
    "min_batch",
    "max_batch",
    "scaling_exponent",
    "serial_fraction",
    "spread_slowdown",
    "cpus",
    "mem_gb",
    *ROLE_COLUMNS,
    "time_limit_s",
    "deadline_s",
    "priority",
    "preemptible",
    *SCHEDULER_NUMBERS,
)
CATEGORIES: Final = (
    "status",
    "user",
    "vc",
    "model",
    "gpu_type",
    "gpu_types_allowed",
    "partition",
    *SCHEDULER_TEXTS,
)
TEXTS: Final = ("job_id", "name")
TYPES: Final = ("gpu_type", "gpu_types_allowed", "durations_by_type")
"""Columns of GPU type names; stored in lower case, so that V100 and v100 are one type."""
MAX_JOB_GPUS: Final = 2**31 - 1
MAX_FLOAT: Final = float(np.finfo(np.float64).max)
BOUNDS: Final = {
    "batch_size": (1.0, MAX_FLOAT),
    "total_steps": (1.0, MAX_FLOAT),
    "min_batch": (1.0, MAX_FLOAT),
    "max_batch": (1.0, MAX_FLOAT),
    "scaling_exponent": (0.0, 1.5),
    "serial_fraction": (0.0, 1.0),
    "spread_slowdown": (1.0, 1000.0),
    "workers": (1.0, MAX_JOB_GPUS),
    "servers": (0.0, MAX_JOB_GPUS),
    "worker_cpus": (0.0, MAX_FLOAT),
    "worker_mem_gb": (0.0, MAX_FLOAT),
    "server_cpus": (0.0, MAX_FLOAT),
    "server_mem_gb": (0.0, MAX_FLOAT),
    "asynchronous": (0.0, 1.0),
    "worker_mem_need_gb": (0.0, MAX_FLOAT),
    "server_mem_need_gb": (0.0, MAX_FLOAT),
    "server_mem_growth_gb": (0.0, MAX_FLOAT),
    "predictable_after": (0.0, MAX_FLOAT),
    "nodes": (1.0, MAX_FLOAT),
    "tasks": (1.0, MAX_FLOAT),
    "tasks_per_node": (1.0, MAX_FLOAT),
    "cpus_per_task": (1.0, MAX_FLOAT),
    "mem_per_node_gb": (0.0, MAX_FLOAT),
    "mem_per_cpu_gb": (0.0, MAX_FLOAT),
    "gpu_fraction": (0.0, 1.0),
    "gpu_mem_gb": (0.0, MAX_FLOAT),
    "nice": (-MAX_FLOAT, MAX_FLOAT),
    "site_priority": (-MAX_FLOAT, MAX_FLOAT),
    "requeue": (0.0, 1.0),
    "requeues": (0.0, MAX_FLOAT),
}
"""Optional numeric column -> smallest and largest allowed value."""
INSTANTS: Final = ("submit_time_s", "start_time_s", "end_time_s", "deadline_s", "begin_s")
"""Columns of instants: seconds since the first submission, rounded to whole microseconds."""
ORDERED_PAIRS: Final = (
    ("min_gpus", "max_gpus"),
    ("min_gpus", "num_gpus"),
    ("num_gpus", "max_gpus"),
    ("min_batch", "max_batch"),
)
"""Pairs of columns (low, high) with low <= high; a job can always run at its requested size."""
COLUMNS: Final = (
    "job_id",
    "submit_time_s",
    "num_gpus",
    "duration_s",
    "start_time_s",
    "end_time_s",
    "status",
    "user",
    "vc",
    "name",
    "model",
    "batch_size",
    "total_steps",
    "gpu_type",
    "gpu_types_allowed",
    "min_gpus",
    "max_gpus",
    "min_batch",
    "max_batch",
    "scaling_exponent",
    "serial_fraction",
    "spread_slowdown",
    "cpus",
    "mem_gb",
    *ROLE_COLUMNS,
    "time_limit_s",
    "deadline_s",
    "priority",
    "partition",
    "preemptible",
    *SCHEDULER_NUMBERS,
    *SCHEDULER_TEXTS,
)


@dataclass(frozen=True, eq=False)
class Trace:
    """Jobs in order of submission; second 0 is the first submission.

    Build it with `Trace.of`, which validates; the constructor trusts its arguments.

    Parameters
    ----------
    frame : DataFrame
        Only columns of `COLUMNS`; the required ones are always present. Numbers are float64 (NaN =
        not given), except `num_gpus`, which is int64; `CATEGORIES` are pandas categories ("" never
        occurs: missing is NaN); `job_id` and `name` are text.
    name : str
        Name for the user.
    epoch : str
        The instant of second 0 as an ISO time, or "" where the source has no calendar.
    from_zero : bool
        Whether the source's clock was also 0 at the first submission; some published simulators
        treat a clock at 0 specially.
    doubts : tuple of (str, str)
        Open questions about its source as (id, sentence); every result from it must show them.
    """

    frame: pd.DataFrame
    name: str = "trace"
    epoch: str = ""
    from_zero: bool = True
    doubts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        *,
        name: str = "trace",
        epoch: str = "",
        from_zero: bool = True,
        doubts: Iterable[Sequence[str]] = (),
    ) -> Trace:
        """Return a validated trace, sorted by submission, from a table in the native schema.

        Parameters
        ----------
        frame : DataFrame
            The native schema; times in seconds from any zero.
        name, epoch : str
            See the class; `epoch` is the instant of the table's second 0, and shifts with the
            clock.
        from_zero : bool
            Whether the table's second 0 equals its source's second 0.
        doubts : iterable of (str, str)
            See the class.

        Returns
        -------
        Trace
            Sorted by (submission, position), second 0 at the first submission; `INSTANTS` are
            rounded to whole microseconds from there.

        Raises
        ------
        TraceError
            If a required column is missing, no row is left, a value is out of range, or an id
            occurs twice. Readers clean rows and report the dropped ones before; this last check
            only refuses.
        """
        missing = [column for column in REQUIRED if column not in frame.columns]
        if missing:
            columns = ", ".join(map(str, frame.columns[:20]))
            raise TraceError(
                f"{name}: column {missing[0]} is missing. Columns found: {columns}. Map one of them"
                " to it."
            )
        if frame.empty:
            raise TraceError(f"{name}: no jobs are left. Choose another file or another window.")
        typed = pd.DataFrame(
            {
                column: _convert_column(frame[column], column, name)
                for column in COLUMNS
                if column in frame.columns
            }
        )
        _check_rows(typed, name)
        zero = float(typed["submit_time_s"].min())
        for column in INSTANTS:
            if column in typed:
                typed[column] = instants(typed[column].to_numpy() - zero)
        _check_range(typed, name)
        if not typed["submit_time_s"].is_monotonic_increasing:
            typed = typed.sort_values("submit_time_s", kind="stable", ignore_index=True)
        if epoch and zero:
            try:
                epoch = (pd.Timestamp(epoch) + pd.Timedelta(zero, "s")).isoformat()
            except (OverflowError, ValueError) as error:
                raise TraceError(
                    f"{name}: the first job is submitted {zero:g} s after {epoch}, which no"
                    " calendar holds. Correct submit_time_s."
                ) from error
        doubt_pairs = tuple((str(key), str(text)) for key, text in doubts)
        return cls(typed, name, epoch, from_zero and not zero, doubt_pairs)

    @property
    def about(self) -> dict[str, Any]:
        """All arguments of `of` except the table, for storing or sending with the jobs."""
        about: dict[str, Any] = {"name": self.name, "epoch": self.epoch}
        about["from_zero"] = self.from_zero
        return about | ({"doubts": self.doubts} if self.doubts else {})

    def __len__(self) -> int:
        """Return the number of jobs."""
        return len(self.frame)

    def has(self, column: str) -> bool:
        """Return whether a column is present with at least one value."""
        return column in self.frame.columns and bool(self.frame[column].notna().any())

    def numbers(self, column: str, missing: float = np.nan) -> NDArray[np.float64]:
        """Return a numeric column as a read-only array of shape (jobs,), gaps as `missing`."""
        if column not in self.frame.columns:
            values = np.full(len(self), missing)
        else:
            values = self.frame[column].to_numpy(np.float64, copy=True)
            if not np.isnan(missing):
                values[np.isnan(values)] = missing
        values.flags.writeable = False
        return values

    def texts(self, column: str, missing: str = "") -> pd.Categorical[Any]:
        """Return a text column as a categorical with `missing` among its categories."""
        if column not in self.frame.columns:
            return pd.Categorical.from_codes(
                np.zeros(len(self), np.int8), categories=pd.Index([missing])
            )
        values = self.frame[column].astype("category").array
        assert isinstance(values, pd.Categorical)
        if missing not in values.categories:
            values = values.add_categories([missing])
        return values.fillna(missing)

    @cached_property
    def digest(self) -> str:
        """The content hash of the jobs and `from_zero`, the only fields that change results."""
        mix = hashlib.blake2b(b"" if self.from_zero else b"later", digest_size=16)
        for column in self.frame.columns:
            values = self.frame[column]
            mix.update(column.encode())
            if column in NUMBERS:
                mix.update(np.ascontiguousarray(values.to_numpy()).tobytes())
            elif isinstance(values.dtype, pd.CategoricalDtype):
                mix.update(
                    "\x1f".join(map(str, values.cat.categories)).encode("utf-8", "surrogatepass")
                )
                mix.update(values.cat.codes.to_numpy(np.int32).tobytes())
            else:
                mix.update(_join_texts(values))
        return mix.hexdigest()

    @property
    def clock_s(self) -> float:
        """Seconds from 1970 to second 0 in the source's local time; 0 without a calendar."""
        if not self.epoch:
            return 0.0
        start = pd.Timestamp(self.epoch).tz_localize(None)
        return float((start - pd.Timestamp(0)).total_seconds())

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last submission."""
        return float(self.frame["submit_time_s"].iloc[-1])

    @property
    def gpu_seconds(self) -> float:
        """GPU-seconds of all jobs: requested GPUs times recorded duration."""
        return float((self.frame["num_gpus"] * self.frame["duration_s"]).sum())


def _convert_column(values: pd.Series, column: str, name: str) -> pd.Series:
    """Convert a column to its type: text, category or float64; refuse other values."""
    values = values.reset_index(drop=True)
    if column in TEXTS:
        return values.astype("str")
    if column in CATEGORIES:
        # Few distinct texts, each many times: convert each only once.
        codes, distinct = pd.factorize(values.astype("str"))
        names = pd.Series(distinct, dtype="str")
        names = names.where(names != "")
        if column in TYPES:
            names = names.str.lower().str.replace(" ", "")
        return pd.Series(names.astype("category").array.take(codes, allow_fill=True))
    try:
        numbers = pd.to_numeric(values, errors="raise").astype(np.float64)
    except (ValueError, TypeError) as error:
        raise TraceError(
            f"{name}: column {column} holds something that is not a number ({error}). Correct it or"
            " map another column."
        ) from error
    return numbers


def _check_rows(frame: pd.DataFrame, name: str) -> None:
    """Refuse rows with bad times, GPUs, ids, cores, memory or scaling; make GPUs integers.

    `num_gpus` of `frame` becomes int64 in place.
    """
    rules = {
        "submit_time_s": (
            ~np.isfinite(frame["submit_time_s"]),
            "a submission time that is not a finite number",
        ),
        "duration_s": (
            ~(np.isfinite(frame["duration_s"]) & (frame["duration_s"] > 0)),
            "a duration that is not a finite number above 0",
        ),
        "num_gpus": (
            ~frame["num_gpus"].between(0, MAX_JOB_GPUS),
            f"a GPU count that is not between 0 and {MAX_JOB_GPUS}",
        ),
        "job_id": (mark_repeated_ids(frame["job_id"]), "an id that an earlier row already has"),
    }
    for column, (bad, what) in rules.items():
        if bad.any():
            row = int(np.flatnonzero(bad.to_numpy())[0])
            raise TraceError(
                f"{name}: row {row + 1} has {what} ({column} = {frame[column].iloc[row]});"
                f" {int(bad.sum())} such rows. Correct or drop them."
            )
    rounded = np.ceil(frame["num_gpus"])
    if (rounded != frame["num_gpus"]).any():
        row = int(np.flatnonzero((rounded != frame["num_gpus"]).to_numpy())[0])
        raise TraceError(
            f"{name}: row {row + 1} asks for {frame['num_gpus'].iloc[row]} GPUs. Round fractions up"
            " before building a trace."
        )
    frame["num_gpus"] = frame["num_gpus"].astype(np.int64)
    for column, limit in (
        ("cpus", MAX_FLOAT),
        ("mem_gb", MAX_FLOAT),
        ("min_gpus", MAX_FLOAT),
        ("max_gpus", MAX_FLOAT),
        ("time_limit_s", np.inf),
    ):
        wrong = (
            ~frame[column].fillna(0).between(0, limit) if column in frame else pd.Series(dtype=bool)
        )
        if wrong.any():
            row = int(np.flatnonzero(wrong.to_numpy())[0])
            raise TraceError(
                f"{name}: row {row + 1} has a negative or infinite {column}"
                f" ({frame[column].iloc[row]}). Correct or drop it."
            )
    _check_scaling(frame, name)


def _join_texts(values: pd.Series) -> memoryview:
    """Return the UTF-8 bytes of all texts of a column, with U+001F between them."""
    cells = pa.array(values, pa.large_string(), from_pandas=True)
    texts = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    column = pa.ListArray.from_arrays([0, len(texts)], texts.fill_null(""))
    separator = pa.scalar("\x1f", pa.large_string())
    return memoryview(pc.binary_join(column, separator)[0].as_buffer())


def mark_repeated_ids(ids: pd.Series) -> pd.Series:
    """Return a boolean per id: whether an earlier row already has it."""
    if isinstance(ids.dtype, pd.StringDtype):
        cells = pa.array(ids, pa.large_string())
        digits = pc.all(pc.ascii_is_decimal(cells)).as_py()
        # Increasing numbers are all different; this check takes a tenth of the time.
        if digits and pc.max(pc.binary_length(cells)).as_py() < 18:
            numbers = cells.cast("int64").to_numpy(zero_copy_only=False)
            if (numbers[1:] > numbers[:-1]).all():
                return pd.Series(False, index=ids.index)
    return ids.duplicated()


def _check_range(frame: pd.DataFrame, name: str) -> None:
    """Refuse submissions and durations beyond the end of the simulated clock."""
    clauses = {
        "submit_time_s": "is submitted {:g} s after the first job",
        "duration_s": "runs for {:g} s",
    }
    for column, clause in clauses.items():
        late = frame[column] > LATEST_S
        if late.any():
            row = int(np.flatnonzero(late.to_numpy())[0])
            raise TraceError(
                f"{name}: row {row + 1} {clause.format(frame[column].iloc[row])} ({column};"
                f" {int(late.sum())} such rows), but the clock ends after {LATEST_S:g} s, 63 years."
                " Give times in seconds (are these milliseconds?), or drop such rows."
            )


def _check_scaling(frame: pd.DataFrame, name: str) -> None:
    """Refuse optional columns out of `BOUNDS`, and pairs that violate `ORDERED_PAIRS`."""
    for column, (lowest, highest) in BOUNDS.items():
        wrong = (
            ~frame[column].fillna(lowest).between(lowest, highest)
            if column in frame
            else pd.Series(dtype=bool)
        )
        if wrong.any():
            row, limit = (
                int(np.flatnonzero(wrong.to_numpy())[0]),
                (f" to {highest:g}" if highest < MAX_FLOAT else " or more, and finite"),
            )
            raise TraceError(
                f"{name}: row {row + 1} has {column} {frame[column].iloc[row]:g}, but it must be"
                f" {lowest:g}{limit}. Correct it or leave it empty."
            )
    for low, high in ORDERED_PAIRS:
        if not {low, high} <= set(frame.columns):
            continue
        crossed = (frame[low] > frame[high]).to_numpy()
        if crossed.any():
            row = int(np.flatnonzero(crossed)[0])
            figures = f"{low} {frame[low].iloc[row]:g} above {high} {frame[high].iloc[row]:g}"
            raise TraceError(f"{name}: row {row + 1} has {figures}. Swap or correct them.")
