"""Deleting an upload: the trace, and every result that was computed from it, because results hold its jobs row by row."""

from __future__ import annotations

from sim.errors import TrainyardError
from trainyard.runs.pool import Pool
from trainyard.store import Store
from trainyard.traces.sources import forget


class InUseError(TrainyardError):
    """Somebody else is running the trace."""


class NotYoursError(TrainyardError):
    """The trace was uploaded by somebody else."""


def delete_trace(digest: str, pool: Pool, watcher: str, owner: str) -> int:
    """Delete a kept trace with its results, on the disk and in memory, and with the traces that hold the same jobs, see `relatives`.

    Parameters
    ----------
    digest : str
        Of the trace.
    pool : Pool
        Runs of it that `watcher` alone waits for are stopped.
    watcher, owner : str
        Who asks: the session, and the browser.

    Returns
    -------
    int
        How many results were deleted.

    Raises
    ------
    NotYoursError
        If another browser uploaded it; whoever opened a link may use a trace, but not delete it.
    InUseError
        If another session, which uploaded the same file or opened a link, waits for a run of it; nothing is deleted then.

    Notes
    -----
    A trace that several browsers uploaded is deleted with the last of them.
    """
    store = pool.store
    family = {one for one in relatives(digest, store) if owner in store.index.owners(one)}
    if digest not in family:
        raise NotYoursError("This trace was uploaded in another browser, and only that one can delete it. Choose another trace to use it no longer.")
    alone = {one for one in family if store.index.owners(one) == {owner}}
    sources = {f"store:{one}" for one in alone}
    if set().union(*(pool.watchers(source) for source in sources)) - {watcher}:
        raise InUseError("Somebody else is running this trace, so it is kept until those runs are over. Delete it again in a few minutes.")
    for source in sources:
        pool.stop(watcher, source)
    results = [key for source in sources for key in store.runs_of(source)]
    for one in family - alone:
        store.index.disown(owner, one)
    for one in alone:
        store.delete_trace(one)
    for key in results:
        store.delete(key)
    forget()
    return len(results)


def relatives(digest: str, store: Store) -> set[str]:
    """Return a kept trace with those from which it came because jobs were left out, and those that came from any of them in that way."""
    kept = {about.digest: {about.digest, *about.account.get("of", ())} for about in store.traces()}
    family = {digest}.union(*(own for own in kept.values() if digest in own))
    return family.union(*(own for own in kept.values() if own & family))
