"""Small files by name, and what the Trace page says of how each was read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.errors import TrainyardError
from sim.trace import Trace
from trainyard.clusters import cluster_warnings
from trainyard.store import Store
from trainyard.traces import intake
from trainyard.traces.sources import row_counts_text

NATIVE: Final = "job_id,submit_time_s,num_gpus,duration_s\n"
SACCT: Final = (
    "JobID|State|Submit|Start|End|ReqTRES|User\n"
    "1|COMPLETED|2024-03-01T08:00:00|2024-03-01T09:00:00|2024-03-01T11:00:00|gres/gpu=4|ann\n"
    "1.batch|COMPLETED|2024-03-01T09:00:00|2024-03-01T09:00:00|2024-03-01T11:00:00||\n"
    "2|CANCELLED by 7|2024-03-01T08:10:00|None|2024-03-01T08:20:00|gres/gpu=8|bob\n"
    "3|RUNNING|2024-03-01T10:00:00|2024-03-01T10:30:00|Unknown|gres/gpu=2|ann\n"
    "4|PENDING|2024-03-01T11:00:00|Unknown|Unknown|gres/gpu=2|cy\n"
    "5|COMPLETED|2024-03-01T11:00:00|2024-03-01T11:00:00|2024-03-01T11:30:00|cpu=4|cy\n"
)
FILES: Final[Mapping[str, tuple[str, str, Mapping[str, Any]]]] = {
    "all rows are used": ("mine.csv", NATIVE + "a,0,1,600\nb,60,4,1200\n", {}),
    "rows are left out and altered": (
        "mine.csv",
        NATIVE + "a,0,1,600\nb,86400,0.5,1200\nc,90,4,-20\na,95,2,60\nd,,2,60\n",
        {},
    ),
    "no row can be used": ("mine.csv", NATIVE + "a,0,1,-5\n", {}),
    "nothing but names of columns": ("mine.csv", NATIVE, {}),
    "Slurm's accounting": ("sacct.txt", SACCT, {}),
    "Slurm's accounting, running jobs cut": ("sacct.txt", SACCT, {"unfinished": "cut"}),
    "Slurm's accounting, jobs without GPUs kept": ("sacct.txt", SACCT, {"cpu_jobs": "keep"}),
    "names of columns that are not ours": (
        "odd.csv",
        "job;submitted at;started at;ended at;GPUs\n"
        "a;2024-03-01 08:00;2024-03-01 08:00;2024-03-01 10:00;4\n"
        "b;2024-03-01 08:30;2024-03-01 10:00;2024-03-01 10:45;8\n",
        {},
    ),
    "dates in two orders": (
        "odd.csv",
        "job;submitted at;started at;ended at;GPUs\n"
        "a;01/03/2024 08:00;01/03/2024 08:00;01/03/2024 10:00;4\n"
        "b;02/03/2024 08:30;02/03/2024 10:00;02/03/2024 10:45;8\n",
        {},
    ),
    "a unit that is not known": (
        "odd.csv",
        "job,submit,gpus,runtime\na,0,4,5\nb,1,8,7\nc,2,2,6\n",
        {},
    ),
    "columns that say nothing": ("odd.csv", "a,b,c,d\n1,x,y,z\n2,x,y,z\n", {}),
    "no table": ("poem.txt", "The trains stand in the yard\nand wait for the morning\n", {}),
}


def reading(name: str, text: str, choices: Mapping[str, Any]) -> list[str]:
    """Return what the page says of a file: its account line by line, or why it is refused."""
    with TemporaryDirectory() as folder:
        try:
            taken = intake.store_upload(
                text.encode(), name, Store(Path(folder) / "store"), choices=dict(choices)
            )
        except TrainyardError as error:
            return [str(error), *asked(intake.open_questions(error))]
    facts = taken.account
    return [
        f"{facts['title']} · {row_counts_text(facts)}",
        *facts["guesses"],
        intake.describe_columns(facts),
        *facts["warnings"],
        *(f"{one['rows']} {one['action']}: {one['reason']}" for one in facts["reasons"]),
        *(f"{rule.title}: {rule.sentence}" for rule in intake.row_treatments(facts)),
        *asked(facts.get("questions", ())),
    ]


def asked(questions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the questions with their answers, each a line."""
    return [f"{one['text']} {' / '.join(one['options'].values())}" for one in questions]


def jobs(*gpus: int, **columns: Any) -> Trace:
    """Return jobs of an hour that are submitted and start at once."""
    count = len(gpus)
    return Trace.of(
        pd.DataFrame(
            {
                "job_id": [str(at) for at in range(count)],
                "submit_time_s": 0.0,
                "start_time_s": 0.0,
                "num_gpus": gpus,
                "duration_s": 3600.0,
                **columns,
            }
        )
    )


def in_doubt(trace: Trace, cluster: str, *never: int) -> Callable[[], list[str]]:
    """Return what makes jobs on a cluster doubtful, where those numbered `never` cannot start."""
    mask = np.isin(np.arange(len(trace)), never)
    return lambda: [*cluster_warnings.find_doubts(trace, Cluster.parse(cluster), mask).values()]


SITUATIONS: Final[Mapping[str, Callable[[], list[str]]]] = {
    **{name: lambda given=given: reading(*given) for name, given in FILES.items()},  # type: ignore[misc]
    "nothing in doubt": in_doubt(jobs(4, 4), "2x4:v100"),
    "the recording used more GPUs": in_doubt(jobs(4, 4, 4), "2x4:v100"),
    "jobs that can never start": in_doubt(jobs(4, 16), "2x4:v100", 1),
    "a GPU type without a speed": in_doubt(jobs(4, 4, gpu_type=["v100", "z9"]), "1x4:v100,1x4:z9"),
}


def sentences(situation: str) -> Sequence[str]:
    """Return the sentences of a situation."""
    return SITUATIONS[situation]()
