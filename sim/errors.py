"""Errors that this package raises on purpose: bad input, impossible plan, broken contract."""

from __future__ import annotations

import re
from typing import Final

MAX_MESSAGE_LENGTH: Final = 500
"""Longest message; a longer one contains text that is not meant for reading."""
MAX_SHOWN_NAME: Final = 60
_TAIL: Final = 170
"""Letters kept of the end, which tells the user what to do."""
_LONG: Final = re.compile(rf"\S{{{MAX_SHOWN_NAME + 1},}}")


def shorten_message(text: str) -> str:
    """Return a message on one line, cut to `MAX_MESSAGE_LENGTH` with an ellipsis per cut.

    Long names are cut first, then the middle. Unprintable characters are replaced by U+FFFD.
    """
    text = " ".join(text.split())
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    if len(text) > MAX_MESSAGE_LENGTH:
        text = _LONG.sub(lambda match: f"{match[0][: MAX_SHOWN_NAME - 10]}…{match[0][-9:]}", text)
    if len(text) > MAX_MESSAGE_LENGTH:
        text = f"{text[: MAX_MESSAGE_LENGTH - _TAIL - 3].rstrip()} … {text[-_TAIL:].lstrip()}"
    return text


class TrainyardError(Exception):
    """An error that the user can act on; its message says what, where and what to do."""

    def __str__(self) -> str:
        """Return the message, shortened if it is too long to read."""
        return shorten_message(super().__str__())


class TraceError(TrainyardError):
    """A trace, or one of its rows, cannot be used."""


class ClusterError(TrainyardError):
    """A cluster description cannot be used."""


class ParameterError(TrainyardError):
    """A parameter is unknown, of the wrong kind or out of its bounds."""


class InfeasiblePlan(TrainyardError):  # noqa: N818 - the name of the contract
    """An allocator planned to use something that the cluster does not have at that instant.

    Parameters
    ----------
    message : str
        Names allocator, instant, job, node, requested and free amounts.
    snapshot : dict
        The allocator's view, reduced to plain values.
    """

    def __init__(self, message: str, snapshot: dict[str, object] | None = None) -> None:
        super().__init__(message, snapshot or {})
        self.snapshot = snapshot or {}

    def __str__(self) -> str:
        return shorten_message(str(self.args[0]))


class SolverError(TrainyardError):
    """No solver found the optimum of a program that the allocator requires."""


class RateError(TrainyardError):
    """A performance model returned a rate that is negative, infinite or not a number.

    Parameters
    ----------
    job : int
        Row of the job.
    rate : float
        The rate from the model.
    """

    def __init__(self, job: int, rate: float) -> None:
        super().__init__(f"Job {job} has a rate of {rate:g}.")
        self.job, self.rate = job, rate


class ContractError(TrainyardError):
    """An allocator or a model broke the contract, other than by an infeasible plan."""
