"""A small replay for the tests: twelve made jobs under three policies on two nodes."""

from __future__ import annotations

from pathlib import Path

from trainyard.labs.replays.reading import read_replay
from trainyard.labs.replays.types import Replay

SMALL = """
name = "small"
title = "Small"
claim = "Up to twice as fast."
known = "All."
reading = "None."
explain = "It turns around."
seeds = 4
axis_seeds = 2

[paper]
title = "On Queues"
authors = "Ann and Bob"
venue = "Journal"
year = 2020
link = "https://example.org"

[base]
trace = "made:elastic-nodes:jobs=12,per_h=8"
cluster = "2x8:v100"
overheads = "restart_s=60"

[arms.fifo]
title = "In order"
set = ["allocator=fifo"]

[arms.short]
title = "Shortest first"
set = ["allocator=srtf"]

[arms.calm]
title = "Shortest first, never stopped"
set = ["allocator=sjf"]

[[axes]]
name = "per_h"
title = "Arrival rate"
unit = "jobs/h"
path = "trace.source.per_h"
values = [4, 8, 16]
claimed = [8]
measures = [{ metric = "jct_mean_s", arm = "short", against = "fifo", title = "Mean JCT" }, { metric = "queue_mean_s", arm = "short", kind = "value" }]

[[axes]]
name = "restart"
title = "Pause"
unit = "s"
values = [30, 600]
sets = [["overheads.restart_s=30"], ["overheads.restart_s=600", "overheads.start_s=5"]]
fixed = ["trace.source.jobs=10"]
only = ["short"]
seeds = 1
measures = [{ metric = "jct_mean_s", arm = "short", against = "fifo" }]

[[claims]]
metric = "jct_mean_s"
arm = "short"
against = "fifo"
published = 0.5
published_text = "up to 50 % shorter"
band = [0.01, 1.2]
band_from = "prototype"
certainty = "read in the abstract"

[[claims]]
metric = "jct_mean_s"
arm = "calm"
against = "short"
kind = "difference"
band = [-2, -1]
band_from = "direction"
certainty = "our reading"

[[claims]]
metric = "preemptions"
arm = "short"
kind = "value"
at = { per_h = 16 }
certainty = "expected (prototype)"
"""  # noqa: E501

BOUNDED = (
    SMALL.replace(
        "[[axes]]",
        """[bounds.least]
title = "All GPUs busy"
of = "fifo"
by = "capacity"

[[axes]]""",
        1,
    ).replace(
        "measures = [{",
        """measures = [{ metric = "makespan_s", arm = "least", against = "fifo", title = "Bound" }, {""",  # noqa: E501
        1,
    )
    + """
[[claims]]
metric = "makespan_s"
arm = "fifo"
against = "least"
band = [1, inf]
band_from = "direction"
certainty = "our reading"

[[claims]]
metric = "jct_mean_s"
arm = "fifo"
kind = "value"
from = { per_h = 4 }
at = { per_h = 16 }
published_text = "longer"
certainty = "from memory"
"""
)
"""The same with a bound, and a claim about a change along an axis."""


def write(folder: Path, text: str = SMALL, name: str = "small") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def small(folder: Path) -> Replay:
    return read_replay(write(folder))
