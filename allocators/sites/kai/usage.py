"""Past usage over a window, decayed with a half-life."""

from __future__ import annotations

from collections import deque
from math import inf, log


class UsageWindow:
    """Decayed integral of an amount in use over a window of the past.

    Parameters
    ----------
    window_s : float, seconds
        Length of the window.
    half_life_s : float, seconds
        Half-life of usage; inf = no decay.
    """

    __slots__ = ("_at_s", "_half_s", "_pieces", "_sum", "_window_s", "level")

    def __init__(self, now_s: float, window_s: float, half_life_s: float) -> None:
        self._at_s, self._window_s, self._half_s = now_s, window_s, half_life_s
        self._pieces: deque[tuple[float, float, float]] = deque()
        self._sum = self.level = 0.0

    def integral(self, now_s: float) -> float:
        """Advance to now; return the decayed integral over the window, in units x seconds.

        The current level counts from the last call until now. Usage before the window is dropped.
        """
        past_s = now_s - self._at_s
        if past_s > 0:
            self._sum = self._sum * self._decay_factor(past_s) + self.level * self._unit_integral(
                past_s
            )
            if self.level:
                self._pieces.append((self._at_s, now_s, self.level))
            self._at_s = now_s
        first_s = now_s - self._window_s
        while self._pieces and self._pieces[0][0] < first_s:
            begin_s, end_s, level = self._pieces.popleft()
            cut_s = min(end_s, first_s)
            self._sum -= level * (
                self._unit_integral(now_s - begin_s) - self._unit_integral(now_s - cut_s)
            )
            if end_s > first_s:
                self._pieces.appendleft((first_s, end_s, level))
        if not self._pieces:
            self._sum = 0.0
        return self._sum

    def _decay_factor(self, age_s: float) -> float:
        """Return the weight of usage of this age."""
        return 1.0 if self._half_s == inf else 0.5 ** (age_s / self._half_s)

    def _unit_integral(self, age_s: float) -> float:
        """Return the decayed integral of one unit in use for this long until now."""
        return (
            age_s
            if self._half_s == inf
            else (1 - self._decay_factor(age_s)) * self._half_s / log(2)
        )
