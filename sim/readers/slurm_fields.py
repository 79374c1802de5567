"""The notations of Slurm accounting: trackable resources, time limits, memory and states, parsed
once per distinct text.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pandas as pd

from sim.readers.cells import each_distinct

SCALE_GB: Final = {"K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0, "P": 1024.0**2}
# Slurm marks "not set" and "infinite" with the largest numbers of 32 and 64 bits, and memory per
# CPU with the top bit.
NO_VALUE: Final = frozenset({4294967294.0, 4294967295.0, float(2**64 - 2), float(2**64 - 1)})
PER_CPU_BIT_MB: Final = float(2**31)
STATES: Final = {
    "PENDING": "pending",
    "RUNNING": "running",
    "SUSPENDED": "suspended",
    "COMPLETED": "completed",
    "CANCELLED": "cancelled",
    "FAILED": "failed",
    "TIMEOUT": "timeout",
    "NODE_FAIL": "node_fail",
    "PREEMPTED": "preempted",
    "BOOT_FAIL": "boot_fail",
    "DEADLINE": "deadline",
    "OUT_OF_MEMORY": "out_of_memory",
    "REQUEUED": "requeued",
    "RESIZING": "running",
    "REVOKED": "cancelled",
    "COMPLETING": "running",
    "CONFIGURING": "running",
    "REQUEUE_HOLD": "pending",
    "STOPPED": "suspended",
}
NUMBERED_STATES: Final = (
    "pending",
    "running",
    "suspended",
    "completed",
    "cancelled",
    "failed",
    "timeout",
    "node_fail",
    "preempted",
    "boot_fail",
    "deadline",
    "out_of_memory",
)
ALIVE: Final = ("running", "suspended")


def state(values: pd.Series) -> pd.Series:
    """Return our words for states such as ``CANCELLED by 1234`` or ``CANCELLED+``."""
    word = values.str.upper().str.extract(r"^([A-Z_]+)", expand=False).fillna("")
    known = word.map(STATES)
    return known.where(known.notna(), word.str.lower())


def tres_number(resources: str, key: str) -> float:
    """Return the figure of one plain resource (``cpu``, ``node``), NaN where it is not listed."""
    found = re.search(rf"(?:^|,){re.escape(key)}=(\d+(?:\.\d+)?)", resources)
    return float(found.group(1)) if found else np.nan


def tres_gpus(resources: str) -> float:
    """Return the GPUs of a TRES string: the untyped total where there is one, else the sum of the
    types; NaN if GPUs are not named.
    """
    total = tres_number(resources, "gres/gpu")
    if not np.isnan(total):
        return total
    typed = re.findall(r"(?:^|,)gres/gpu:[^=,]+=(\d+)", resources)
    return sum(map(float, typed)) if typed else np.nan


def tres_gpu_type(resources: str) -> str:
    """Return the type most GPUs of a TRES string have, in lower case, or ""."""
    typed = re.findall(r"(?:^|,)gres/gpu:([^=,]+)=(\d+)", resources)
    return max(typed, key=lambda pair: float(pair[1]))[0].lower() if typed else ""


def tres_mem_gb(resources: str) -> float:
    """Return the memory of a TRES string in GB (``mem=31000M``, ``mem=62.50G``), a number without a
    unit being MB.
    """
    found = re.search(r"(?:^|,)mem=(\d+(?:\.\d+)?)([KMGTP]?)", resources)
    return float(found.group(1)) * SCALE_GB[found.group(2) or "M"] if found else np.nan


def gres_gpus(resources: str) -> float:
    """Return the GPUs of a GRES string such as ``hbm:0,gpu:P100:2(IDX:0-1)``; as typed by the user,
    usually per node.
    """
    counts = re.findall(
        r"(?:^|,)(?:gres[:/])?gpu(?::[^:,(]+)?:(\d+)", re.sub(r"\([^)]*\)", "", resources)
    )
    if counts:
        return sum(map(float, counts))
    return 1.0 if re.search(r"(?:^|,)gpu(?::[A-Za-z][^:,]*)?(?:,|$)", resources) else np.nan


def length_s(clock: str) -> float:
    """Return seconds of ``[DD-[HH:]]MM:SS[.mmm]``; NaN for UNLIMITED, Partition_Limit and anything
    else.
    """
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", clock)
    if not found:
        return np.nan
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def lengths_s(values: pd.Series) -> pd.Series:
    """Apply `length_s` to a column."""
    return each_distinct(values, length_s)


def requested_mem_gb(values: pd.Series, nodes: pd.Series, cpus: pd.Series) -> pd.Series:
    """Return memory of the job in GB from ReqMem: ``4000Mn`` per node, ``3000Mc`` per CPU, ``16G``
    for the job; 0 is not given.
    """
    per_cpu = values.str.endswith("c") | (
        each_distinct(values, lambda cell: float(_bare_mb(cell) >= PER_CPU_BIT_MB)) == 1
    )
    times = pd.Series(1.0, index=values.index)
    times = times.where(~values.str.endswith("n"), nodes).where(~per_cpu, cpus)
    amount = each_distinct(values, lambda cell: _bare_mb(cell) % PER_CPU_BIT_MB / 1024)
    return (amount * times).where(amount > 0)


def _bare_mb(cell: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)[nc]?", cell)
    return float(found.group(1)) * SCALE_GB[found.group(2) or "M"] * 1024 if found else np.nan
