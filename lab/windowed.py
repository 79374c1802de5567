"""Figures over time for a window of the runs: series recomputed from the full results, as finely as a screen shows them."""

from __future__ import annotations

from typing import Final

import pandas as pd

from sim.metrics import reduce_frame

_STRIP_BINS: Final = 199


def strip(frame: pd.DataFrame, end_s: float) -> pd.DataFrame:
    """Return a series as coarsely as a strip above the figures needs it, from 0 to `end_s` seconds."""
    columns = [name for name in ("t_s", "waiting", "total") if name in frame]
    return reduce_frame(frame[columns], 0.0, max(end_s, 1.0), _STRIP_BINS)
