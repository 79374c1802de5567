"""The errors this package raises on purpose: a bad input, an impossible plan, a broken contract."""

from __future__ import annotations

import re
from typing import Final

MOST_LETTERS: Final = 500
"""Of a sentence; a longer one contains text that was not meant to be read."""
LONGEST_NAME: Final = 60
_TAIL: Final = 170
"""Letters kept of the end, which says what to do."""
_LONG: Final = re.compile(rf"\S{{{LONGEST_NAME + 1},}}")


def shortened(text: str) -> str:
    """Return a sentence on one line, cut to `MOST_LETTERS`: names first, then its middle; an
    ellipsis stands for what is cut.

    Characters that cannot be seen, or would command a terminal, become marks.
    """
    text = " ".join(text.split())
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    if len(text) > MOST_LETTERS:
        text = _LONG.sub(lambda found: f"{found[0][: LONGEST_NAME - 10]}…{found[0][-9:]}", text)
    if len(text) > MOST_LETTERS:
        text = f"{text[: MOST_LETTERS - _TAIL - 3].rstrip()} … {text[-_TAIL:].lstrip()}"
    return text


class TrainyardError(Exception):
    """Something the user can act on; its message is one sentence that says what, where and what to
    do.
    """

    def __str__(self) -> str:
        """Return the sentence, cut if it is too long to be read."""
        return shortened(super().__str__())


class TraceError(TrainyardError):
    """A trace, or one of its rows, cannot be used."""


class ClusterError(TrainyardError):
    """A cluster description cannot be used."""


class ParameterError(TrainyardError):
    """A parameter is unknown, of the wrong kind or out of its bounds."""


class InfeasiblePlan(TrainyardError):  # noqa: N818 - the name of the contract
    """An allocator asked for something that the cluster cannot give at that instant.

    Parameters
    ----------
    message : str
        Names allocator, instant, job, node, asked and free.
    snapshot : dict
        What the allocator saw: the view, reduced to plain values.
    """

    def __init__(self, message: str, snapshot: dict[str, object] | None = None) -> None:
        super().__init__(message, snapshot or {})
        self.snapshot = snapshot or {}

    def __str__(self) -> str:
        return shortened(str(self.args[0]))


class SolverError(TrainyardError):
    """No solver found the optimum of a program that an allocator cannot do without."""


class RateError(TrainyardError):
    """A performance model gives a job a rate that is negative, infinite or not a number.

    Parameters
    ----------
    job : int
        The job's number.
    rate : float
        What the model gives.
    """

    def __init__(self, job: int, rate: float) -> None:
        super().__init__(f"Job {job} has a rate of {rate:g}.")
        self.job, self.rate = job, rate


class ContractError(TrainyardError):
    """An allocator or a model did something that the contract forbids, apart from infeasible
    plans.
    """
