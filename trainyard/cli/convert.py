"""The ``generate`` and ``convert`` commands: write the jobs of a trace as a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from jobtraces import peek
from jobtraces.generate import PROFILES, generate, with_history
from sim.params import Spec
from sim.trace import Trace
from trainyard.cli.arguments import (
    add_reading,
    parse_cluster,
    read_text,
    trace_spec,
    used_reading_options,
)
from trainyard.cli.errors import UsageError
from trainyard.cli.questions import alternative_options, resolve_questions
from trainyard.clusters.uploads import MAX_CLUSTER_BYTES, group_files, read_machines
from trainyard.formatting import plural
from trainyard.study.document import MAX_BYTES
from trainyard.study.scenario import MADE, READY, TraceSpec
from trainyard.traces import likeness
from trainyard.traces.fitting import fit_cluster
from trainyard.traces.merging import merge_traces
from trainyard.traces.own_recipes import recipe_of_import, write_recipe
from trainyard.traces.samples import write_sample, write_trace
from trainyard.traces.sources import Source, apply_changes, load_files, load_source

T = TypeVar("T")


def add_generate(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard generate``."""
    parser.set_defaults(command=_run_generate)
    parser.add_argument(
        "what",
        metavar="PROFILE|sample:NAME|made:NAME",
        nargs="?",
        help=f"one of {', '.join(PROFILES)}, a sample or a generated workload",
    )
    parser.add_argument("--profile", metavar="PROFILE", help="same as the first argument")
    parser.add_argument(
        "--like",
        metavar="TRACE|FIGURES.json",
        help="generate jobs similar to a trace, or to figures fitted to one",
    )
    parser.add_argument(
        "--figures",
        metavar="FILE.json",
        help="write the fitted figures, which contain no names, ids or dates",
    )
    parser.add_argument("--jobs", metavar="N", type=int, help="number of jobs (default 1000)")
    parser.add_argument(
        "--seed", metavar="N", type=int, help="seed; equal seeds give equal files (default 0)"
    )
    parser.add_argument(
        "--load",
        metavar="L",
        type=float,
        help=(
            "requested over available GPU-seconds (default 0.9); with --like the factor on the"
            " number of jobs (default 1)"
        ),
    )
    parser.add_argument(
        "--days", metavar="D", type=float, help="days from first to last submission"
    )
    parser.add_argument(
        "--cluster",
        metavar="SPEC|FILE",
        help="machines for the jobs (default: those of the profile)",
    )
    parser.add_argument(
        "--history", action="store_true", help="add generated start times; needs --cluster"
    )
    parser.add_argument(
        "--out",
        metavar="FILE|DIR",
        help="FILE.csv or FILE.parquet; a folder for a sample",
    )
    add_reading(parser)


def add_convert(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard convert``."""
    parser.set_defaults(command=_run_convert)
    parser.add_argument(
        "files",
        metavar="FILE|sample:NAME|made:NAME",
        nargs="*",
        help="trace to read; several files if its tables are separate",
    )
    parser.add_argument("--trace", metavar="FILE|sample:NAME|made:NAME", help="same as FILE")
    add_reading(parser)
    parser.add_argument("--out", metavar="FILE", required=True, help="FILE.csv or FILE.parquet")
    parser.add_argument(
        "--merge", action="store_true", help="merge several traces into one, on one clock"
    )
    parser.add_argument(
        "--anonymise",
        action="store_true",
        help="replace ids, users, names, accounts, virtual clusters and partitions by numbers",
    )
    parser.add_argument(
        "--report", metavar="FILE.csv", help="write all dropped or altered rows with reasons"
    )
    parser.add_argument(
        "--save-recipe",
        metavar="FILE.toml|NAME",
        help=(
            "save how the file was read: as FILE.toml for --recipe, or under a NAME that applies"
            " to all files with the same columns"
        ),
    )


def _run_generate(args: argparse.Namespace) -> None:
    """Execute ``generate``: write generated or sample jobs as a table."""
    if args.like or args.figures:
        _run_generate_like(args)
        return
    if given := used_reading_options(args):
        raise UsageError(f"{given[0]} controls how a trace is read. Use it with --like TRACE.")
    if not args.out:
        raise UsageError("Nothing to write to: give --out FILE.csv or FILE.parquet.")
    what = args.what or args.profile
    if args.profile and args.profile != what:
        raise UsageError(
            f"generate {args.what} and --profile {args.profile} contradict each other. Keep one of"
            " them."
        )
    if not what:
        raise UsageError(
            f"Nothing to generate: name a profile ({', '.join(PROFILES)}), sample:NAME or"
            " made:NAME."
        )
    out = Path(args.out)
    if what.startswith(READY) and (needless := _used_profile_options(args)):
        raise UsageError(
            f"{needless[0]} applies to profiles, but {what} already defines its jobs. Leave the"
            " option out."
        )
    if what.startswith("sample:"):
        _make_parent(out / "x")
        jobs, machines = _report_write_errors(
            out, lambda: write_sample(what.removeprefix("sample:"), out)
        )
        print(f"{jobs}\n{machines}")
        return
    _check_table_name(out)
    trace = (
        load_source(TraceSpec(what)).trace
        if what.startswith(MADE)
        else _generate_profile(what, args)
    )
    _make_parent(out)
    _report_write_errors(out, lambda: write_trace(trace, out))
    _print_written(out, trace)


def _print_written(out: Path, trace: Trace) -> None:
    """Print the file, and the size of the trace in it."""
    print(
        f"{out}: {plural(len(trace), 'job')} over {trace.span_s / 86_400:.1f} days,"
        f" {trace.gpu_seconds / 3600:,.0f} GPU-hours"
    )


def _run_generate_like(args: argparse.Namespace) -> None:
    """Execute ``generate --like``: write similar jobs, the fitted figures, or both."""
    needless = [f"--{name}" for name in ("jobs", "days", "history") if getattr(args, name)]
    if not args.like or args.what or args.profile or needless:
        extra = args.what or (needless or ["--profile" if args.profile else "--figures"])[0]
        raise UsageError(
            f"{extra} does not work here: --like TRACE takes --load, --seed, --cluster, --figures"
            " and --out."
        )
    if not args.out and not args.figures:
        raise UsageError("Nothing to write: give --out FILE.csv, --figures FILE.json, or both.")
    if args.out:
        _check_table_name(Path(args.out))
    load, seed = 1.0 if args.load is None else args.load, args.seed or 0
    cluster = parse_cluster(args.cluster) if args.cluster else None
    figures = _read_figures(args.like)
    if figures is None:
        args.trace = args.like
        _, source = resolve_questions(
            trace_spec(args), args, lambda spec: load_source(spec, max_mb=args.max_mb)
        )
        machines = cluster or fit_cluster(source).cluster
        spec = likeness.fit_look_alike(source.trace, load=load, seed=seed, cluster=machines)
        print(likeness.fit_sentence(likeness.compare_with_fit(source.trace, seed)))
    else:
        changes = {"load": args.load, "seed": args.seed} | (
            {"cluster": likeness.cluster_short_form(cluster)} if cluster else {}
        )
        given = {name: value for name, value in changes.items() if value is not None}
        spec = TraceSpec(f"{MADE}{Spec.of('like', **{**figures.values, **given})}")
    if args.figures:
        path = Path(args.figures)
        _make_parent(path)
        _report_write_errors(
            path, lambda: path.write_text(likeness.figures_document(spec), encoding="utf-8")
        )
        print(f"{path}: the fitted figures, without names, ids and dates. {likeness.PRIVACY_NOTE}")
    if args.out:
        out, trace = Path(args.out), load_source(spec).trace
        _make_parent(out)
        _report_write_errors(out, lambda: write_trace(trace, out))
        _print_written(out, trace)


def _read_figures(place: str) -> Spec | None:
    """Return the fitted figures of a small .json file; None for any other file: a trace."""
    if not place.lower().endswith(".json"):
        return None
    path = Path(place)
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        return None  # reading it as a trace reports the error
    return likeness.parse_figures(read_text(path, "a file of figures"))


def _used_profile_options(args: argparse.Namespace) -> list[str]:
    """Return the given options that only profiles take."""
    return [
        f"--{name}"
        for name in ("jobs", "seed", "load", "days", "cluster", "history")
        if getattr(args, name) not in (None, False)
    ]


def _generate_profile(profile: str, args: argparse.Namespace) -> Trace:
    """Return a trace drawn from a profile, with start times if requested."""
    cluster = parse_cluster(args.cluster) if args.cluster else None
    if args.history and cluster is None:
        raise UsageError(
            "--history needs --cluster, because the generated start times depend on its GPUs."
        )
    jobs, load = 1000 if args.jobs is None else args.jobs, 0.9 if args.load is None else args.load
    seed = args.seed or 0
    trace = generate(profile, jobs=jobs, seed=seed, cluster=cluster, load=load, days=args.days)
    return with_history(trace, cluster, seed) if cluster is not None and args.history else trace


def _run_convert(args: argparse.Namespace) -> None:
    """Execute ``convert``: write a trace with native columns, and print the reading report."""
    out = Path(args.out)
    _check_table_name(out)
    if args.anonymise and args.report:
        raise UsageError(
            "--report contains ids and cells of the file, which contradicts --anonymise. Leave one"
            " of them out."
        )
    spec, source = _load_to_convert(args)
    trace = (
        apply_changes(source.trace, TraceSpec(anonymise=True)) if args.anonymise else source.trace
    )
    _make_parent(out)
    _report_write_errors(out, lambda: write_trace(trace, out))
    account = source.account
    if args.report:
        report = Path(args.report)
        _make_parent(report)
        text = (
            source.imported.issues_csv() if source.imported else "row,job_id,action,reason,detail\n"
        )
        _report_write_errors(report, lambda: report.write_text(text, encoding="utf-8", newline=""))
    if args.save_recipe:
        _save_recipe(args, spec, source)
    print(
        f"{out}: {plural(account['read'], 'row')} read, {account['used']:,} used,"
        f" {account['dropped']:,} left out"
    )
    for item in account["reasons"]:
        print(f"  {item['rows']:,} {item['action']}: {item['reason']}")
    for sentence in (*account["warnings"], *account["guesses"]):
        print(f"  {sentence}")
        for offer in account.get("offers", ()):
            if offer["text"] == sentence:
                for line in alternative_options(offer):
                    print(f"    {line}")


def _save_recipe(args: argparse.Namespace, spec: TraceSpec, source: Source) -> None:
    """Save how a single file was read, as a file or under a name; print the path."""
    if source.imported is None or len(args.files) > 1:
        raise UsageError("--save-recipe saves how one file was read. Convert a single file.")
    path = Path(spec.source).expanduser()
    fingerprint = peek(path).fingerprint
    name = Path(args.save_recipe).stem
    recipe = recipe_of_import(path.name, source.imported, spec.choices(), fingerprint, name)
    sys.stderr.write(f"{write_recipe(recipe, args.save_recipe)}: how {path.name} was read.\n")


def _load_to_convert(args: argparse.Namespace) -> tuple[TraceSpec, Source]:
    """Return spec and source of the trace to convert; several traces are merged.

    Open questions are answered or asked as the arguments say. The spec is that of the first trace.
    """
    places = [*args.files, *([args.trace] if args.trace else [])]
    if not places:
        raise UsageError("Nothing to convert: name a file, sample:NAME or made:NAME.")
    if len(places) == 1:
        args.trace = places[0]
        _check_not_machines(Path(places[0]))
        return resolve_questions(
            trace_spec(args), args, lambda spec: load_source(spec, max_mb=args.max_mb)
        )
    if ready := next((place for place in places if place.startswith(READY)), ""):
        raise UsageError(f"{ready} is a complete trace. Convert it alone.")
    groups = [tuple(places)] if args.format or args.recipe else _group_traces(places, args.merge)
    read = {" + ".join(one): _load_trace_files(args, one) for one in groups}
    first, _ = next(iter(read.values()))
    if len(read) == 1:
        return next(iter(read.values()))
    return first, merge_traces({name: source for name, (_, source) in read.items()})


def _load_trace_files(args: argparse.Namespace, places: Sequence[str]) -> tuple[TraceSpec, Source]:
    """Return spec and source of a trace from one file, or from several with its tables."""
    args.trace = places[0]
    return resolve_questions(
        trace_spec(args),
        args,
        lambda one: (
            load_files(places, one.fmt, one.choices(), max_mb=args.max_mb)
            if len(places) > 1
            else load_source(one, max_mb=args.max_mb)
        ),
    )


def _check_not_machines(path: Path) -> None:
    """Raise if a file describes machines, not jobs; other files pass, also unreadable ones.

    Raises
    ------
    UsageError
        If the file describes machines.
    """
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_CLUSTER_BYTES else b""
    except (OSError, ValueError):
        return  # reading the trace reports the error
    if data and (machines := read_machines(path.name, data)) is not None:
        nodes = plural(len(machines.cluster.nodes), "node")
        raise UsageError(
            f"{path.name} describes machines, not jobs: {nodes} with"
            f" {plural(machines.cluster.gpus, 'GPU')}. Name a file of jobs, and give this one as"
            " --cluster of a run."
        )


def _group_traces(places: Sequence[str], merge: bool) -> list[tuple[str, ...]]:
    """Return the traces among several files, as tuples of their files.

    Prints what the other files are.

    Raises
    ------
    TrainyardError
        If no file contains jobs, or there are several traces and no --merge.
    """
    try:
        files = {place: Path(place).read_bytes() for place in dict.fromkeys(places)}
    except OSError as error:
        raise UsageError(
            f"{error.filename}: this file cannot be read ({error.strerror})."
        ) from error
    grouped = group_files(files)
    sys.stderr.writelines(f"{sentence}\n" for sentence in grouped.refused.values())
    sys.stderr.writelines(
        f"{name} describes machines, not jobs: give it as --cluster of a run.\n"
        for name in grouped.machines
    )
    if len(grouped.traces) > 1 and not merge:
        traces = "; ".join(" + ".join(names) for names in grouped.traces)
        raise UsageError(
            f"These are separate traces: {traces}. Convert one at a time, or merge them with"
            " --merge."
        )
    if not grouped.traces:
        raise UsageError("None of these files contains jobs, so nothing was converted.")
    return grouped.traces


def _check_table_name(path: Path) -> None:
    """Raise if a file name does not end in .csv or .parquet."""
    if path.suffix not in (".csv", ".parquet"):
        raise UsageError(f"{path}: the name must end in .csv or .parquet.")


def _make_parent(path: Path) -> None:
    """Create the folder of a file."""
    _report_write_errors(path.parent, lambda: path.parent.mkdir(parents=True, exist_ok=True))


def _report_write_errors(path: Path, write: Callable[[], T]) -> T:
    """Return the result of a function that writes; raise its OSError as a UsageError."""
    try:
        return write()
    except OSError as error:
        raise UsageError(
            f"{path}: the file cannot be written ({error.strerror or error}). Choose another place."
        ) from error
