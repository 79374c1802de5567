"""Open damaged files as the pages do: `python scripts/fuzz.py --seed N --inputs N`.

Run it with the Python of the environment. Each input follows from the seed and its number:
`--seed 7 --first 4711 --inputs 1` repeats one. A fault is an error of another library, a message
that is not a sentence, more than 5 s of CPU time, or more than 1 GB of memory.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

import _inputs
import pandas as pd

from jobtraces import FORMATS
from jobtraces.readers.options import OpenQuestionError
from sim.cluster import Cluster
from sim.errors import MAX_MESSAGE_LENGTH, TrainyardError
from sim.perf import PerfSpec
from sim.trace import Trace
from trainyard.clusters import machines, prices
from trainyard.library import archive
from trainyard.runs.estimate import Costs, estimate
from trainyard.store import Store, profiles
from trainyard.store.entry import to_parquet
from trainyard.store.store import plain
from trainyard.study.document import canonical_json
from trainyard.study.study import Study
from trainyard.traces import bundle, intake, new_study
from trainyard.traces.sampling import anonymize

MAX_S: Final = 5.0
MAX_MB: Final = 1000.0
SHARES: Final[Mapping[str, int]] = {
    "trace": 8,
    "cluster": 4,
    "tables": 2,
    "scenario": 3,
    "link": 3,
    "profile": 1,
}
"""Kind of file -> weight of the draw."""
TESTS: Final = "tests/scripts/test_fuzz.py"
_SHOWN: Final = 20
_MAX_BYTES: Final = 8_000_000_000
_PATIENCE_S: Final = 600
"""Seconds after which an input is ended with its process."""


class Shelf:
    """Replacement of the store that serializes a trace without writing it."""

    def put_trace(
        self, trace: Trace, account: Mapping[str, Any] | None = None, _owners: Sequence[str] = ()
    ) -> str:
        """Serialize a trace and return its digest."""
        to_parquet(trace.frame)
        json.dumps(plain(account or {}), allow_nan=False)
        self.trace = trace
        return trace.digest


class Pages:
    """Handlers of the pages for each kind of file.

    Parameters
    ----------
    store : Store
        For scenarios and profiles.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._study = store, new_study.sample_study()
        self._perf: PerfSpec = profiles.build_model(self._study.base.perf, store)
        self.kinds: Mapping[str, Callable[[random.Random], None]] = {
            "trace": self.trace,
            "cluster": self.cluster,
            "tables": self.tables,
            "scenario": self.scenario,
            "link": self.link,
            "profile": self.profile,
        }

    def trace(self, rng: random.Random) -> None:
        """Drop a file on the Trace page."""
        data, shelf = _inputs.trace(rng), Shelf()
        peeked, choices = None, dict[str, Any]()
        try:
            peeked = intake.peek_upload(data, "file")
            intake.example_cells(peeked)
            [intake.median_duration_s(peeked, None, unit) for unit in ("s", "ms")]
            if rng.random() < 0.1 and peeked.columns:
                choices["mapping"] = intake.check_mapping(
                    {
                        native: rng.choice(["", *peeked.columns])
                        for native in intake.NATIVE_COLUMNS[:6]
                    }
                )
        except TrainyardError as error:
            check_sentence(error)
        if rng.random() < 0.2:
            choices |= {
                "time_unit": rng.choice(("s", "ms", "h")),
                "duration_unit": rng.choice(("s", "h")),
                "zone": rng.choice((None, "Europe/Berlin")),
            }
            choices |= {
                "cpu_jobs": rng.choice(("keep", "drop")),
                "unfinished": rng.choice(("cut", "drop")),
                "since": rng.choice(("submit", "eligible")),
                "answers": {"gpus_each": "4", "wait": "included", "job_start": "taken_up"},
            }
        fmt = rng.choice(list(FORMATS)) if rng.random() < 0.05 else ""
        while True:
            try:
                taken = intake.store_upload(
                    data, "file", shelf, fmt=fmt, choices=choices, start=peeked
                )  # type: ignore[arg-type]
                break
            except OpenQuestionError as error:
                check_sentence(error)
                before = choices.get("answers", {})
                answers = {
                    one.id: rng.choice([*one.options, "700", "0.5"])
                    for one in error.questions
                    if one.id not in before
                }
                if not answers:
                    return
                choices["answers"] = before | answers
        intake.row_treatments(taken.account)
        intake.describe_columns(taken.account)
        self._read_jobs(shelf.trace)

    def _read_jobs(self, trace: Trace) -> None:
        """Compute all figures of the Trace page."""
        intake.profile_trace(trace)
        intake.span_days(trace)
        machines.cluster_presets(trace)
        machines.offered_load(trace, self._study.base.cluster)
        machines.find_unschedulable_jobs(trace, self._study.base.cluster, self._perf).sentences()
        anonymize(trace.frame)

    def cluster(self, rng: random.Random) -> None:
        """Drop a file on the Cluster page."""
        data, name = _inputs.cluster(rng)
        self._read_machines(
            machines.import_cluster(
                name, data, rng.choice(("", "2020-09-01T00:00:00+08:00"))
            ).cluster
        )

    def _read_machines(self, cluster: Cluster) -> None:
        """Compute all figures of the Cluster page."""
        study = new_study.with_cluster(self._study, cluster)
        groups, types = machines.group_table(cluster), machines.type_table(cluster)
        machines.cluster_from_tables(groups, types, cluster)
        machines.cluster_totals(cluster)
        if len(cluster.nodes) < 1000:
            machines.node_rows(cluster)
        prices.types_without_own_price(cluster)
        prices.describe_sources(cluster)
        [prices.apply_price_list(cluster, listed) for listed in prices.PRICE_LISTS]
        study.pack()

    def tables(self, rng: random.Random) -> None:
        """Edit the tables of the Cluster page: machines, and GPU types."""
        cluster = self._study.base.cluster
        groups, types = (
            table.astype("object")
            for table in (machines.group_table(cluster), machines.type_table(cluster))
        )
        for table in (groups, types):
            for _ in range(rng.randint(0, 2)):
                table.iat[rng.randrange(len(table)), rng.randrange(table.shape[1])] = rng.choice(
                    (*_inputs.VALUES[:24], pd.NA, pd.NaT)
                )
        self._read_machines(machines.cluster_from_tables(groups, types, cluster))

    def scenario(self, rng: random.Random) -> None:
        """Drop a file on the Start page."""
        data = _inputs.scenario(rng)
        if archive.is_archive(data):
            archive.import_archive(self._store, "0" * 32, data, "file.zip", results=False)
            return
        self._open_study(
            bundle.open_scenario_file(data, "file.json", self._study, self._store).study
        )

    def link(self, rng: random.Random) -> None:
        """Open a link."""
        document: Any = self._study.to_json()
        for _ in range(rng.randint(1, 2)):
            document = _inputs.replace_value(rng, document)
        # Packed by hand, so that it can have values that a page never writes.
        packed = zlib.compress(json.dumps(document).encode("utf-8", "replace"), 1)
        self._open_study(
            new_study.refuse_server_file(Study.unpack(base64.urlsafe_b64encode(packed).decode()))
        )

    def _open_study(self, study: Study) -> None:
        """Compute the figures of an opened study."""
        canonical_json(study.to_json())
        new_study.is_trace_missing(study, self._store)
        machines.cluster_totals(study.base.cluster)
        if study.base.trace.source == self._study.base.trace.source:
            [
                new_study.refusal_reason(study, at, self._store)
                for at in range(len(study.allocators))
            ]
            estimate(study, self._store, Costs(), 2)

    def profile(self, rng: random.Random) -> None:
        """Drop a profile on the Policies page."""
        kept = profiles.store_profile(_inputs.profile(rng), "profile.csv", self._store)
        kept.table.clean()
        profiles.load_profile(kept.source, self._store)
        profiles.with_table(self._study.base.perf, kept, self._study.base.cluster)


def check_sentence(error: TrainyardError) -> None:
    """Raise ValueError if the message of an error is not one readable sentence."""
    message = str(error)
    if not (
        0 < len(message) <= MAX_MESSAGE_LENGTH
        and message.isprintable()
        and message.rstrip().endswith((".", "?", ")"))
    ):
        raise ValueError(f"no sentence: {message[:200]!r}") from error


def fault(pages: Pages, kind: str, rng: random.Random, limit_s: float = MAX_S) -> str:
    """Try one input; return the place and kind of its fault, or ""."""
    began_s, before_mb = time.process_time(), _peak_mb()
    try:
        try:
            pages.kinds[kind](rng)
        except TrainyardError as error:
            check_sentence(error)
    except Exception as error:  # any other error is a fault
        frames = traceback.extract_tb(error.__traceback__)
        ours = [
            frame
            for frame in frames
            if not {"scripts", "site-packages"} & set(Path(frame.filename).parts)
        ]
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "fuzz"
        return f"{type(error).__name__} at {where}: {str(error)[:160]!r}"
    took_s, grown_mb = time.process_time() - began_s, _peak_mb() - before_mb
    if took_s > limit_s:
        return f"took {took_s:.1f} s of CPU time"
    return f"took {grown_mb:,.0f} MB" if grown_mb > MAX_MB else ""


def _peak_mb() -> float:
    """Return the peak memory of this process in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def main(arguments: Sequence[str]) -> int:
    """Try inputs up to a number or a time; return 1 after a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    drawn = random.SystemRandom().randrange(2**31)
    parser.add_argument(
        "--seed",
        type=int,
        default=drawn,
        help="seed of the inputs (default: random)",
    )
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--kind", choices=tuple(SHARES), help="only files of one kind")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument(
        "--minutes",
        type=float,
        default=0.0,
        help="stop after this time; 0 = no limit",
    )
    parser.add_argument(
        "--cpu-s", type=float, default=float("inf"), help="stop after this CPU time"
    )
    parser.add_argument(
        "--limit-s", type=float, default=MAX_S, help="CPU seconds above which an input is a fault"
    )
    args = parser.parse_args(arguments)
    print(f"seed {args.seed}", flush=True)
    faults: Counter[str] = Counter()
    ends_s = time.monotonic() + (args.minutes or 1e6) * 60
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder) / "at"
        at, most_s, spent_s = args.first, args.cpu_s, 0.0
        while at < args.first + args.inputs and time.monotonic() < ends_s and spent_s < most_s:
            child = get_context("spawn").Process(
                target=try_inputs,
                args=(
                    args.seed,
                    at,
                    args.first + args.inputs,
                    (ends_s, most_s - spent_s, args.limit_s),
                    mark,
                ),
                kwargs={"only": args.kind or ""},
            )
            child.start()
            child.join()
            reached, spent, *lines = mark.read_text(encoding="utf-8").splitlines()
            faults.update(lines)
            at, spent_s = int(reached), spent_s + float(spent)
            if child.exitcode:
                print(f"input {at} ended the process (exit code {child.exitcode})", flush=True)
                faults["the process ended"] += 1
                at += 1
    done = (
        f"{at - args.first:,} inputs, {len(faults):,} kinds of faults, {spent_s:.0f} s of CPU time"
    )
    print(f"{done}; continue with --seed {args.seed} --first {at}")
    for key, count in faults.most_common(_SHOWN):
        print(f"{count:,} x {key}")
    return 1 if faults else 0


def try_inputs(
    seed: int,
    first: int,
    end: int,
    limits: tuple[float, float, float],
    mark: Path,
    only: str = "",
) -> None:
    """Try inputs in a process that an input can end; write progress and faults to `mark`."""
    warnings.simplefilter("ignore")
    # An input must not use all memory of the machine.
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    kinds, lines = [kind for kind, share in SHARES.items() for _ in range(share)], dict[str, None]()
    began_s = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        pages = Pages(Store(Path(folder)))
        for at in range(first, end):
            mark.write_text(
                "\n".join([str(at), f"{time.process_time() - began_s:.2f}", *lines]),
                encoding="utf-8",
            )
            if time.monotonic() > limits[0] or time.process_time() - began_s > limits[1]:
                return
            rng = random.Random(f"{seed}/{at}")
            kind = only or rng.choice(kinds)
            signal.alarm(_PATIENCE_S)
            wrong = fault(pages, kind, rng, limits[2])
            if wrong:
                key = f"{kind}: {wrong}".replace("\n", " ").partition(": '")[0]
                if key not in lines:
                    print(f"input {at}, {kind}: {wrong}", flush=True)
                    print(f'Paste into FAILED_ONCE of {TESTS}: ("{kind}", "{seed}/{at}"),')
                lines[key] = None
            if (at + 1) % 10_000 == 0:
                print(
                    f"{at + 1:,} inputs, {time.process_time() - began_s:.0f} s of CPU time,"
                    f" {_peak_mb():,.0f} MB, {len(lines):,} kinds of faults",
                    flush=True,
                )
    mark.write_text(
        "\n".join([str(end), f"{time.process_time() - began_s:.2f}", *lines]), encoding="utf-8"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
