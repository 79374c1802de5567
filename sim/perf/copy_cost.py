"""Cost of the copies of a forked job: time to join them, and steps that are worth less."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sim.errors import ParameterError
from sim.params import param

_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")
FREE: Final = {"efficiency": 1.0, "consolidate_s": 0.0}
"""Parameters of free copies, the default of most models before scenario format 2."""


@dataclass(frozen=True, kw_only=True)
class Copies:
    """The cost of copies, a part of every performance model.

    Notes
    -----
    A job forked into k copies, each its own gang, does the sum of their rates x ``efficiency`` ^ (k
    - 1) x (1 - ``consolidate_s`` / ``round_s``). The form is that of our reading of HadarE (Sultana
    et al., arXiv 2503.10918: weights of the copies are averaged once a round); its abstract states
    neither figure. The defaults are our assumptions, without a source: copies that exchange weights
    once in 6 minutes take separate steps for hundreds of iterations, so 8 of them do the work of
    5.5, and 19 are worth the most.
    """

    efficiency: float = param(
        0.95,
        title="Efficiency of further copies",
        low=0.01,
        high=1,
        help=(
            "Worth of a step of every copy beyond the first; 1 = full. Only the policy HadarE"
            " makes copies."
        ),
    )
    consolidate_s: float = param(
        5.0,
        title="Time to join copies",
        unit="s",
        low=0,
        high=3600,
        help="Time to join the copies of a job, once a round; HadarE only.",
    )
    round_s: float = param(
        360.0,
        title="Length of a round",
        unit="s",
        low=1,
        high=86_400,
        help="Time between joins of copies; HadarE only.",
    )

    def __post_init__(self) -> None:
        """Refuse a round that is not longer than joining the copies takes."""
        if self.consolidate_s >= self.round_s:
            owner = _CAPITAL.sub("_", type(self).__name__).lower()
            raise ParameterError(
                f"{owner}: consolidate_s = {self.consolidate_s:g} s takes all of round_s ="
                f" {self.round_s:g} s. Lower consolidate_s."
            )

    def worth(self, copies: int) -> float:
        """Return the factor on the summed rates of `copies` copies of a job; 1 for one."""
        if copies < 2:
            return 1.0
        return self.efficiency ** (copies - 1) * (1 - self.consolidate_s / self.round_s)

    def price(self) -> str:
        """Return a clause for users on the cost of copies."""
        if self.efficiency == 1 and not self.consolidate_s:
            return "copies of a job add up in full and cost nothing to join"
        return (
            f"joining the copies of a job takes {self.consolidate_s:g} s every {self.round_s:g} s,"
            f" and a step is worth {self.efficiency:g} times as much for every copy beyond the"
            " first"
        )
