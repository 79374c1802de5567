"""Deleting an upload: the trace, and every result that was computed from it, because results hold its jobs row by row."""

from __future__ import annotations

from lab.pool import Pool
from lab.sources import forget
from sim.errors import TrainyardError


class InUseError(TrainyardError):
    """Somebody else is running the trace."""


def delete_trace(digest: str, pool: Pool, watcher: str) -> int:
    """Delete a kept trace with its results, on the disk and in memory.

    Parameters
    ----------
    digest : str
        Of the trace.
    pool : Pool
        Runs of it that `watcher` alone waits for are stopped.
    watcher : str
        Who asks.

    Returns
    -------
    int
        How many results were deleted.

    Raises
    ------
    InUseError
        If another session, which uploaded the same file or opened a link, waits for a run of it; nothing is deleted then.
    """
    source = f"store:{digest}"
    if pool.watchers(source) - {watcher}:
        raise InUseError("Somebody else is running this trace, so it is kept until those runs are over. Delete it again in a few minutes.")
    pool.stop(watcher, source)
    results = [entry.key for entry in pool.store.entries() if entry.scenario["trace"]["source"] == source]
    pool.store.delete_trace(digest)
    for key in results:
        pool.store.delete(key)
    forget()
    return len(results)
