"""Loads the engine when imported, by the fork server or by `dask worker --preload`.

Workers that the fork server starts share its memory, so they need not load machine code.
"""

from __future__ import annotations

from trainyard.runs import task, worker
from trainyard.store import index

__all__ = ["index", "task", "worker"]

worker.warm_up()
