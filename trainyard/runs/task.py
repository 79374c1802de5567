"""Tasks of workers: run a scenario and return its numbers, or store its full result."""

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
from trainyard.runs.run import run, run_to_store, summarize_run
from trainyard.store import Store, StoreError, plain
from trainyard.store.entry import read_frame
from trainyard.study.scenario import MADE, Scenario
from trainyard.traces.sources import load_source, load_trace

Baggage = Mapping[str, tuple[bytes, Mapping[str, Any]]]
"""Digest of a trace or profile -> file and metadata, for workers that cannot reach the store."""
_GENERATED: Final = ("sample:", MADE)
_STORES: Final[dict[tuple[str, ...], tuple[tempfile.TemporaryDirectory[str], Store]]] = {}
"""Digests of a baggage -> a store with it, in a temporary folder of this process."""
_UNPACKING: Final = threading.Lock()


class Numbers(NamedTuple):
    """Summary numbers of a run, and the remarks of the allocator."""

    summary: Mapping[str, Any]
    remarks: tuple[str, ...]


def run_numbers(
    document: Mapping[str, Any],
    address: str,
    baggage: Baggage,
    progress: Callable[[Progress], None] | None = None,
) -> Numbers:
    """Run a scenario and return its numbers.

    Parameters
    ----------
    document : mapping
        `Scenario.to_json`.
    address : str
        Address of the store with its trace; "" = use the baggage.
    baggage : mapping
        Traces and profiles from `pack_scenario`.
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
        (Store.open(address) if address else _unpack_baggage(baggage)),
    )
    trace = load_trace(scenario.trace, store)
    result = run(scenario, trace=trace, store=store, progress=progress)
    numbers = plain(summarize_run(scenario, result, trace))
    return Numbers(numbers | {"cell_cpu_s": time.process_time() - began_s}, result.remarks)


def run_whole(
    document: Mapping[str, Any],
    address: str,
    baggage: Baggage,
    progress: Callable[[Progress], None] | None = None,
) -> Numbers:
    """Run a scenario, store its full result at `address`, and return its numbers.

    Raises StoreError if the stored result is gone at once.

    Parameters are as for `run_numbers`; `baggage` is ignored.
    """
    del baggage
    began_s = time.process_time()
    key = run_to_store(document, address, progress)
    entry = Store.open(address).get(key)
    if entry is None:
        raise StoreError(
            f"The result {key[:12]} was stored, but is already missing or damaged. Run again."
        )
    return Numbers(
        dict(entry.summary) | {"cell_cpu_s": time.process_time() - began_s}, entry.remarks
    )


def pack_scenario(scenario: Scenario, store: Store) -> tuple[dict[str, Any], Baggage]:
    """Return a scenario document for remote workers, and the trace and profile it needs.

    Raises
    ------
    TrainyardError
        If its trace or profile cannot be loaded.
    """
    document, baggage = scenario.to_json(), dict[str, tuple[bytes, Mapping[str, Any]]]()
    if not scenario.trace.source.startswith(_GENERATED):
        trace = load_source(scenario.trace, store).trace
        # The key of a result depends on the jobs, not on their location.
        document["trace"] = document["trace"] | {
            "source": f"store:{trace.digest}",
            "fmt": "",
            "read": {},
        }
        baggage[trace.digest] = _trace_file(trace), trace.about
    table = str(scenario.perf.values.get("table", ""))
    if (
        table.startswith(STORED)
        and (profile := store.get_profile(table.removeprefix(STORED))) is not None
    ):
        baggage[table.removeprefix(STORED)] = profile
    return document, baggage


@lru_cache(maxsize=4)
def _trace_file(trace: Trace) -> bytes:
    """Return the jobs of a trace as a Parquet file."""
    buffer = BytesIO()
    trace.frame.to_parquet(buffer, index=False, compression="lz4")
    return buffer.getvalue()


def _unpack_baggage(baggage: Baggage) -> Store:
    """Return this process's temporary store with the contents of the baggage; cached."""
    digests = tuple(sorted(baggage))
    # A worker of Dask may have several threads.
    with _UNPACKING:
        if digests not in _STORES:
            folder = tempfile.TemporaryDirectory(prefix="trainyard-", ignore_cleanup_errors=True)
            # Its own database, not the one of the environment: no other process reaches the files.
            store = Store(
                Path(folder.name), database=f"sqlite:///{Path(folder.name) / 'worker.db'}"
            )
            for digest, (data, about) in baggage.items():
                if "epoch" in about:
                    store.put_trace(Trace.of(read_frame(data), **about))
                else:
                    store.put_profile(digest, data, about)
            _STORES[digests] = folder, store
        return _STORES[digests][1]
