"""Who wins and who loses under a policy: jobs by how many times longer they take than under the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.theme import NARROW_PX, NEUTRAL, TEXT_PX, faded, figure, legend_px

_TICKS: Final = {-5: "1/32", -4: "1/16", -3: "1/8", -2: "1/4", -1: "1/2", 0: "same", 1: "2 ×", 2: "4 ×", 3: "8 ×", 4: "16 ×", 5: "32 ×"}
_STRIPES: Final = "rgba(255, 255, 255, 0.7)"


def winners(histogram: pd.DataFrame, parts: tuple[str, str, str], colour: str, title: str = "", beside: Sequence[str] = ()) -> go.Figure:
    """Draw the jobs whose completion time changed, by its ratio to that under the baseline, on a symmetric log axis with "same" in the middle.

    Parameters
    ----------
    histogram : DataFrame
        `low` and `high` (ratio, edges of a bin) and `jobs`.
    parts : (str, str, str)
        How many of all jobs compared are faster, as before and slower. Written above their side.
    colour : str
        Of the policy. Slower jobs are hatched as well, so that sides are told apart without colour.
    title : str
        The finding or the question.
    beside : sequence of str
        Policies of the figure of completion times that it stands beside: as high as that.
    """
    low, high = (np.log2(histogram[name].to_numpy(np.float64)) for name in ("low", "high"))
    most = float(max(-low.min(), high.max())) if len(histogram) else 1.0
    jobs, middle = histogram["jobs"].to_numpy(np.float64), (low + high) / 2
    told = [f"{first:.3g} to {last:.3g} times as long" for first, last in zip(histogram["low"], histogram["high"], strict=True)]
    traces: list[dict[str, Any]] = []
    for name, side, fill in (("faster", middle < 0, colour), ("slower", middle > 0, faded(colour, 0.7))):
        pattern = {"shape": "" if name == "faster" else "/", "fillmode": "overlay", "fgcolor": _STRIPES, "solidity": 0.4}
        marker = {"color": fill, "line": {"width": 0}, "pattern": pattern}
        texts = [text for text, here in zip(told, side, strict=True) if here]
        bars = {"type": "bar", "name": name, "x": middle[side], "y": jobs[side], "width": (high - low)[side], "marker": marker}
        traces.append(bars | {"customdata": texts, "hovertemplate": "%{y:,.0f} jobs take %{customdata}<extra></extra>"})
    ticks = {at: text for at, text in _TICKS.items() if abs(at) <= most + 1e-9}
    x = {
        "tickvals": list(ticks),
        "ticktext": list(ticks.values()),
        "range": [-most * 1.02, most * 1.02],
        "title": {"text": "JCT, times the baseline's"},
    }
    y = {"rangemode": "tozero", "title": {"text": "jobs"}}
    drawn = figure(traces, title, 320, legend_px=max(24, legend_px(beside, NARROW_PX)), xaxis=x, yaxis=y, showlegend=False, bargap=0)
    drawn.add_vline(x=0, line={"color": NEUTRAL, "width": 2})
    words = zip(("← faster {}", "same {}", "slower {} →"), parts, (0.0, 0.5, 1.0), ("left", "center", "right"), strict=True)
    for text, part, at, anchor in words:
        place = {"xref": "paper", "x": at, "xanchor": anchor, "yref": "paper", "y": 1, "yanchor": "bottom", "yshift": 2}
        drawn.add_annotation(text=f"<b>{text.format(part)}</b>", showarrow=False, font={"size": TEXT_PX}, **place)
    return drawn
