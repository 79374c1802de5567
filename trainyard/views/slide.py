"""A comparison as one slide, which the browser draws: headline, three figures and two charts."""

from __future__ import annotations

import json
from typing import Any, Final

from trainyard.views import jobs, ledger, over_time
from trainyard.views.charts import visible
from trainyard.views.comparison import ComparisonView
from trainyard.views.figure_view import LARGE_SCALE

_TILES: Final = ("jct_mean_s", "wait_mean_s", "cost_held_per_job_usd")
"""Metrics of the tiles, after the one that policies are judged by."""
_TEXT: Final = 400


def slide_contents(view: ComparisonView, *, dark: bool = False) -> dict[str, Any]:
    """Return the contents of the slide of a comparison view, as plain values.

    Parameters
    ----------
    view : ComparisonView
        The view that is shown.
    dark : bool
        Whether colors are those of the dark theme.

    Returns
    -------
    dict
        `headline`, and its part `high` in the color `accent`; `facts`; `note`: jobs left out
        and assumptions; `tiles`, at most three, as `Tile.to_json`; `charts`: two Plotly figures in
        large type; `source`: trace and cluster.

    Raises
    ------
    StoreError
        If a stored result was deleted.
    """
    compared, choice = view.runs, view.choice
    look = compared.look(choice.high, hidden=choice.hidden, scale=LARGE_SCALE)
    note = "all jobs" if choice.group else ""
    queue = over_time.queue(compared, look, note=note, only_queue=True)
    curve = jobs.jct_cdf(view.group_runs, look)
    tiles = {tile.title: tile for tile in view.tiles if tile.value}
    first = [ledger.ALL[name].title for name in (choice.goal, *_TILES)]
    titles = [title for title in dict.fromkeys((*first, *tiles)) if title in tiles]
    return {
        "headline": visible(view.headline.text, _TEXT),
        "high": visible(choice.high),
        "accent": compared.colours(dark).get(choice.high, ""),
        "facts": visible(view.facts, _TEXT),
        "note": visible(view.notes, _TEXT),
        "tiles": [tiles[title].to_json() for title in titles[:3]],
        # Plotly's JSON has null in place of NaN.
        "charts": [
            json.loads(one.with_theme(dark, large=True).to_json()) for one in (queue, curve)
        ],
        "source": compared.source,
        "dark": dark,
    }
