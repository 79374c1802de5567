"""What was held in the past, the older the less it counts."""

from __future__ import annotations

from collections import deque
from math import inf, log


class Held:
    """The integral of what is held over a window of the past, with a half-life.

    Parameters
    ----------
    window_s : float, seconds
        How far back it counts.
    half_life_s : float, seconds
        After this it counts half; inf = all of the window counts alike.
    """

    __slots__ = ("_at_s", "_half_s", "_pieces", "_sum", "_window_s", "level")

    def __init__(self, now_s: float, window_s: float, half_life_s: float) -> None:
        self._at_s, self._window_s, self._half_s = now_s, window_s, half_life_s
        self._pieces: deque[tuple[float, float, float]] = deque()
        self._sum = self.level = 0.0

    def at(self, now_s: float) -> float:
        """Return the integral, in units held x seconds."""
        past_s = now_s - self._at_s
        if past_s > 0:
            self._sum = self._sum * self._kept(past_s) + self.level * self._whole(past_s)
            if self.level:
                self._pieces.append((self._at_s, now_s, self.level))
            self._at_s = now_s
        first_s = now_s - self._window_s
        while self._pieces and self._pieces[0][0] < first_s:
            begin_s, end_s, level = self._pieces.popleft()
            cut_s = min(end_s, first_s)
            self._sum -= level * (self._whole(now_s - begin_s) - self._whole(now_s - cut_s))
            if end_s > first_s:
                self._pieces.appendleft((first_s, end_s, level))
        if not self._pieces:
            self._sum = 0.0
        return self._sum

    def _kept(self, age_s: float) -> float:
        return 1.0 if self._half_s == inf else 0.5 ** (age_s / self._half_s)

    def _whole(self, age_s: float) -> float:
        """Return what one unit counts that was held for so long until now."""
        return age_s if self._half_s == inf else (1 - self._kept(age_s)) * self._half_s / log(2)
