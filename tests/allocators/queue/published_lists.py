"""The loop of the published Tiresias simulator under GPU time, in exact arithmetic, with and
without its oddities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor, inf

Job = tuple[int, int, int]
"""(submission, GPUs, duration), whole seconds."""


@dataclass
class Row:
    gpus: int
    left: Fraction
    queue: int = 0
    executed: Fraction = field(default_factory=Fraction)
    runs: bool = False


def tiresias(
    jobs: Sequence[Job], gpus: int, limits: Sequence[int], *, published: bool
) -> dict[int, Fraction]:
    """Return the end of each job.

    Parameters
    ----------
    jobs : sequence of Job
        The trace, in order of submission.
    gpus : int
        GPUs of the cluster, a mere counter.
    limits : sequence of int, GPU-seconds
        Service at which a job leaves each queue but the last.
    published : bool
        Whether the next demotion is expected after floor((limit - seconds executed) / GPUs), as
        upstream has it; else at the very instant, (limit / GPUs - seconds executed).
    """
    now, coming = Fraction(jobs[0][0]), list(enumerate(jobs))
    rows: dict[int, Row] = {}
    queues: list[list[int]] = [[] for _ in range(len(limits) + 1)]
    ends: dict[int, Fraction] = {}
    while coming or rows:
        for job in [job for job, row in rows.items() if not row.left]:
            ends[job] = now
            queues[rows.pop(job).queue].remove(job)
        while coming and coming[0][1][0] <= now:
            job, (_, size, duration) = coming.pop(0)
            rows[job] = Row(size, Fraction(duration))
            queues[0].append(job)
        for job, row in rows.items():
            at = row.queue
            if row.runs and at < len(limits) and row.executed * row.gpus >= limits[at]:
                queues[at].remove(job)
                queues[at + 1].append(job)
                row.queue += 1
        _fill(rows, queues, gpus)
        times = [Fraction(coming[0][1][0])] if coming else []
        for row in (row for row in rows.values() if row.runs):
            times.append(now + row.left)
            if row.queue < len(limits):
                limit = limits[row.queue]
                exact = Fraction(limit, row.gpus) - row.executed
                times.append(
                    now + (floor((limit - row.executed) / row.gpus) if published else exact)
                )
        then = min([at for at in times if at > now], default=inf)
        for row in (row for row in rows.values() if row.runs):
            row.executed += Fraction(then) - now
            row.left -= Fraction(then) - now
        now = Fraction(then) if rows or coming else now
    return ends


def _fill(rows: dict[int, Row], queues: list[list[int]], free: int) -> None:
    """Fill the empty cluster in order of the lists, then move those that wait behind the others."""
    for queue in queues:
        for job in queue:
            row = rows[job]
            row.runs = row.gpus <= free
            free -= row.gpus if row.runs else 0
        queue.sort(key=lambda job: not rows[job].runs)
