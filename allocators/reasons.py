"""Explanations of waits that several policies share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sim.contract import Decided, JobId, Reason, Value

_NO_CORES: Final = "no node had the cores and memory that it needs"
_TOO_FEW: Final = "this job needs {need:gpus} and {free:gpus_were} free"
_APART: Final = "{free:gpus_were} free, but not where its {need:gpus} can be together"
ROOM: Final = (_NO_CORES, _TOO_FEW, _APART)
"""Reasons that apply under any policy; a policy adds a more specific one."""


def room_reason(decided: Decided, job: JobId) -> Reason:
    """Return the reason that compares the free GPUs with the request of a job."""
    need, free = decided.wants(job), decided.free_for(job)
    rule = _NO_CORES if not need else _TOO_FEW if free < need else _APART
    return Reason(rule, {"free": free, "need": need})


def prefix_reason(rule: str, then: Reason, **values: Value) -> Reason:
    """Return a reason that puts a clause before another reason."""
    return Reason(f"{rule}; {then.rule}", {**then.values, **values}, then.detail)


def queue_reason(
    decided: Decided, job: JobId, ahead: Sequence[JobId], order: str, *, blocks: bool
) -> Reason:
    """Explain a wait in a queue that starts jobs in order.

    Parameters
    ----------
    decided : Decided
        The decision.
    job : int
        The waiting job.
    ahead : sequence of int
        The jobs before it, in queue order.
    order : str
        The order in words, e.g. "by submission".
    blocks : bool
        Whether the first job of the queue blocks all others.
    """
    if not ahead:
        return prefix_reason(f"first {order}", room_reason(decided, job))
    if not blocks:
        return prefix_reason(
            f"{{ahead:jobs_were}} ahead {order}", room_reason(decided, job), ahead=len(ahead)
        )
    first = ahead[0]
    if not decided.wants(first):
        return Reason(
            f"{{ahead:jobs_were}} ahead {order}; the first (job {{first:job}}) needs cores that"
            " no node had",
            {"ahead": len(ahead), "first": first},
        )
    free, needs = decided.free_for(first), decided.wants(first)
    there = "{free:gpus_were} free" if free < needs else "only smaller pieces were free"
    return Reason(
        f"{{ahead:jobs_were}} ahead {order}; the first (job {{first:job}}) needs"
        f" {{needs:gpus}} and {there}",
        {"ahead": len(ahead), "first": first, "needs": needs, "free": free},
    )


def outranked_reason(
    decided: Decided, job: JobId, better: Sequence[JobId], rank: str, **values: Value
) -> Reason:
    """Explain a wait behind running jobs of higher rank.

    Parameters
    ----------
    decided : Decided
        The decision.
    job : int
        The waiting job.
    better : sequence of int
        The running jobs that may not be preempted for it.
    rank : str
        Why they rank higher, e.g. "with less time left".
    **values
        Values of the placeholders in `rank`.
    """
    held = sum(decided.held_gpus(one) for one in better)
    if not better:
        return room_reason(decided, job)
    return prefix_reason(
        f"{{better:jobs}} {rank} held {{held:gpus}}",
        room_reason(decided, job),
        better=len(better),
        held=held,
        **values,
    )


def next_decision_reason(at_s: float, what: str) -> Reason:
    """Explain a wait for the next decision, e.g. "the next round begins"."""
    return Reason(f"{what} at {{next:instant}}, and nothing starts before", {"next": at_s})
