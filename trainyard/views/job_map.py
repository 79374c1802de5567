"""Jobs by node and time, packed for a script that draws them and finds the jobs at a point."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.metrics.occupancy import holdings, outages
from trainyard.views.charts import theme, visible
from trainyard.views.charts.machines import label_px, row_labels, short_name
from trainyard.views.explored_runs import ExploredRuns
from trainyard.what_if.explore import Occupancy

MAX_PLOTTED: Final = 64
"""Maximum number of nodes that are drawn as a Plotly heat map; more are drawn by the script."""
_STEPS: Final = 2**32 - 1
"""Largest instant: instants are whole steps from the first begin to the last end."""
_DAY_S: Final = 86_400.0


def pack(explored: ExploredRuns, occupancy: Occupancy, order: Sequence[int]) -> bytes:
    """Return the holdings of all jobs on the nodes of a heat map, as bytes.

    Parameters
    ----------
    explored : ExploredRuns
        One or two policies, one panel each.
    occupancy : Occupancy
        The nodes over the window.
    order : sequence of int
        Nodes from top to bottom.

    Notes
    -----
    Four bytes with the length of the header; the header as JSON; arrays of 4 bytes a value. The
    arrays are the rows of the named jobs in the trace, then for each panel: first holding of each
    node and the end, begin, end, job and GPUs of each holding, and node, begin and end of each time
    without capacity. A holding takes 16 bytes.
    """
    line, window = explored.book.line, explored.window
    colours = explored.compared.colours(), explored.compared.colours(dark=True)
    place = {name: node for node, name in enumerate(line.names)}
    nodes = [place[occupancy.rows[row]] for row in order]
    held = {title: holdings(book.line, nodes, window) for title, book in explored.books.items()}
    down = {title: outages(book.line, nodes, window) for title, book in explored.books.items()}
    jobs = np.unique(np.concatenate([frame["job"] for frame, _ in held.values()])).astype("<u4")
    ends = np.concatenate(
        [window, *(frame[["t0", "t1"]].to_numpy().ravel() for frame, _ in held.values())]
    )
    t0_s, step_s = float(ends.min()), float(np.ptp(ends)) / _STEPS

    def steps(frame: pd.DataFrame) -> list[NDArray[Any]]:
        """Return begin and end of spells as whole steps."""
        t = (frame[["t0", "t1"]].to_numpy(np.float64) - t0_s) / step_s
        return list(np.rint(np.clip(t, 0, _STEPS)).astype("<u4").T)

    arrays: list[NDArray[Any]] = [jobs]
    for title, (frame, _) in held.items():
        first = np.searchsorted(frame["row"], np.arange(len(nodes) + 1)).astype("<u4")
        job = np.searchsorted(jobs, frame["job"]).astype("<u4")
        arrays += [first, *steps(frame), job, frame["gpus"].to_numpy("<f4")]
        arrays += [down[title]["row"].to_numpy("<u4"), *steps(down[title])]
    body = b"".join(values.tobytes() for values in arrays)
    names = [visible(short_name(occupancy.rows[row])) for row in order]
    ids, clock = explored.book.trace.frame["job_id"], explored.axis.clock
    midnight_s = clock.midnight_s + _DAY_S * np.floor((window[0] - clock.midnight_s) / _DAY_S)
    header = {
        "window": window,
        "origin": t0_s,
        "step": step_s,
        "rows": names,
        "size": [float(occupancy.size[row]) for row in order],
        "unit": occupancy.unit,
        "names": [visible(short_name(str(name))) for name in ids.iloc[jobs]],
        "panels": [
            {
                "title": visible(title, 40),
                "colors": [by_title[title] for by_title in colours],
                "count": len(held[title][0]),
                "down": len(down[title]),
                "left_out": held[title][1],
            }
            for title in held
        ],
        "ticks": [explored.axis.layout()[name] for name in ("tickvals", "ticktext")],
        "midnight": midnight_s,
        "days": [clock.day(at) for at in np.arange(midnight_s, window[1] + 1, _DAY_S).tolist()],
        "seconds": clock.seconds,
        "left": label_px(row_labels(occupancy.rows)),
        "colors": theme.JOB_COLOURS,
        "canvas": len(nodes) > MAX_PLOTTED,
    }
    text = json.dumps(header | {"mark": f"{zlib.crc32(body):08x}"}).encode()
    text += b" " * (-len(text) % 4)
    return len(text).to_bytes(4, "little") + text + body
