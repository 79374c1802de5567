"""What a worker of a sweep does: one run, of which the numbers come back; with the jobs in its
luggage where it cannot reach the store.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple

from sim.engine.simulator import Progress
from sim.perf.profiled import STORED
from sim.trace import Trace
from trainyard.runs.run import run, run_to_store, summarise
from trainyard.store import Store, StoreError, plain
from trainyard.store.entry import read_frame
from trainyard.study.scenario import MADE, Scenario
from trainyard.traces.sources import load_source, load_trace

Baggage = Mapping[str, tuple[bytes, Mapping[str, Any]]]
"""Digest of a trace or profile -> its file and what is known of it."""
_SELF_MADE: Final = ("sample:", MADE)
_STORES: Final[dict[tuple[str, ...], tuple[tempfile.TemporaryDirectory[str], Store]]] = {}
"""Of this process: for each baggage a store, in a folder that goes with the process."""
_UNPACKING: Final = threading.Lock()


class Numbers(NamedTuple):
    """What comes back of a run: its summary, and what the allocator said."""

    summary: Mapping[str, Any]
    remarks: tuple[str, ...]


def run_numbers(
    document: Mapping[str, Any],
    address: str,
    baggage: Baggage,
    progress: Callable[[Progress], None] | None = None,
) -> Numbers:
    """Run a scenario.

    Parameters
    ----------
    document : mapping
        `Scenario.to_json`.
    address : str
        Of the store with its trace; "" = what is needed is in the baggage.
    baggage : mapping
        What `packed` returned.
    progress : callable or None
        As for `trainyard.runs.run.run`.

    Raises
    ------
    TrainyardError
        As `trainyard.runs.run.run`.
    """
    began_s = time.process_time()
    scenario, store = (
        Scenario.from_json(document),
        (Store.at(address) if address else _unpacked(baggage)),
    )
    trace = load_trace(scenario.trace, store)
    result = run(scenario, trace=trace, store=store, progress=progress)
    numbers = plain(summarise(scenario, result, trace))
    return Numbers(numbers | {"cell_cpu_s": time.process_time() - began_s}, result.remarks)


def run_whole(
    document: Mapping[str, Any],
    address: str,
    baggage: Baggage,
    progress: Callable[[Progress], None] | None = None,
) -> Numbers:
    """Run a scenario and keep all of its result in the store at `address`; otherwise as
    `run_numbers`.
    """
    del baggage
    began_s = time.process_time()
    key = run_to_store(document, address, progress)
    entry = Store.at(address).get(key)
    if entry is None:
        raise StoreError(
            f"The result {key[:12]} was kept, but is gone or damaged already. Run again."
        )
    return Numbers(
        dict(entry.summary) | {"cell_cpu_s": time.process_time() - began_s}, entry.remarks
    )


def packed(scenario: Scenario, store: Store) -> tuple[dict[str, Any], Baggage]:
    """Return a scenario as a worker without access to the store can run it, and what it needs to.

    Raises
    ------
    TrainyardError
        If its trace or profile cannot be loaded.
    """
    document, baggage = scenario.to_json(), dict[str, tuple[bytes, Mapping[str, Any]]]()
    if not scenario.trace.source.startswith(_SELF_MADE):
        trace = load_source(scenario.trace, store).trace
        # The key of a result is made of the jobs, not of where they lie.
        document["trace"] = document["trace"] | {
            "source": f"store:{trace.digest}",
            "fmt": "",
            "read": {},
        }
        baggage[trace.digest] = _file(trace), trace.about
    table = str(scenario.perf.values.get("table", ""))
    if (
        table.startswith(STORED)
        and (found := store.get_profile(table.removeprefix(STORED))) is not None
    ):
        baggage[table.removeprefix(STORED)] = found
    return document, baggage


@lru_cache(maxsize=4)
def _file(trace: Trace) -> bytes:
    buffer = BytesIO()
    trace.frame.to_parquet(buffer, index=False, compression="lz4")
    return buffer.getvalue()


def _unpacked(baggage: Baggage) -> Store:
    """Return a store of this worker's own with what is in the baggage."""
    mark = tuple(sorted(baggage))
    # A worker of Dask may have several threads.
    with _UNPACKING:
        if mark not in _STORES:
            folder = tempfile.TemporaryDirectory(prefix="trainyard-", ignore_cleanup_errors=True)
            # Not the database that the environment may name: nobody else reaches these files.
            store = Store(
                Path(folder.name), database=f"sqlite:///{Path(folder.name) / 'worker.db'}"
            )
            for digest, (data, about) in baggage.items():
                if "epoch" in about:
                    store.put_trace(Trace.of(read_frame(data), **about))
                else:
                    store.put_profile(digest, data, about)
            _STORES[mark] = folder, store
        return _STORES[mark][1]
