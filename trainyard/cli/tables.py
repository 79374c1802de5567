"""The ``generate`` and ``convert`` commands: they write the jobs of a trace as a table."""

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
from trainyard.cli.errors import UsageError
from trainyard.cli.given import add_reading, cluster_of, read_text, reading_choices, trace_spec
from trainyard.cli.questions import settled, ways
from trainyard.clusters.drops import LARGEST, sort_out
from trainyard.clusters.machines import recognised
from trainyard.study.document import MAX_BYTES
from trainyard.study.scenario import MADE, READY, TraceSpec
from trainyard.text import plural
from trainyard.traces import likeness
from trainyard.traces.fitting import cluster_for
from trainyard.traces.merging import merged
from trainyard.traces.own_recipes import keep, of_import
from trainyard.traces.samples import write_sample, write_trace
from trainyard.traces.sources import Source, changed, load_files, load_source

T = TypeVar("T")


def add_generate(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard generate``."""
    parser.set_defaults(command=_generate)
    parser.add_argument(
        "what",
        metavar="PROFILE|sample:NAME|made:NAME",
        nargs="?",
        help=f"one of {', '.join(PROFILES)}, a sample or a made workload",
    )
    parser.add_argument("--profile", metavar="PROFILE", help="the same as the first argument")
    parser.add_argument(
        "--like",
        metavar="TRACE|FIGURES.json",
        help="jobs like those of a trace, or of the figures that were fitted to one",
    )
    parser.add_argument(
        "--figures",
        metavar="FILE.json",
        help="write the fitted figures, which hold no name, id or date",
    )
    parser.add_argument("--jobs", metavar="N", type=int, help="number of jobs (default 1000)")
    parser.add_argument("--seed", metavar="N", type=int, help="same seed, same file (default 0)")
    parser.add_argument(
        "--load",
        metavar="L",
        type=float,
        help=(
            "GPU-seconds asked for over those there are (default 0.9); with --like how many times"
            " the jobs (default 1)"
        ),
    )
    parser.add_argument("--days", metavar="D", type=float, help="from first to last submission")
    parser.add_argument(
        "--cluster",
        metavar="SPEC|FILE",
        help="the machines the jobs are for; without it the profile's",
    )
    parser.add_argument(
        "--history", action="store_true", help="add made start times; needs --cluster"
    )
    parser.add_argument(
        "--out",
        metavar="FILE|DIR",
        help="FILE.csv or FILE.parquet; a folder for a sample",
    )
    add_reading(parser)


def add_convert(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard convert``."""
    parser.set_defaults(command=_convert)
    parser.add_argument(
        "files",
        metavar="FILE|sample:NAME|made:NAME",
        nargs="*",
        help="the trace to read; several files where its tables are apart",
    )
    parser.add_argument("--trace", metavar="FILE|sample:NAME|made:NAME", help="the same")
    add_reading(parser)
    parser.add_argument("--out", metavar="FILE", required=True, help="FILE.csv or FILE.parquet")
    parser.add_argument(
        "--merge", action="store_true", help="make one trace of several, on one clock"
    )
    parser.add_argument(
        "--anonymise",
        action="store_true",
        help="replace ids, users, names, accounts, virtual clusters and partitions by numbers",
    )
    parser.add_argument(
        "--report", metavar="FILE.csv", help="write every dropped or altered row with its reason"
    )
    parser.add_argument(
        "--save-recipe",
        metavar="FILE.toml|NAME",
        help=(
            "keep how the file was read: in FILE.toml for --recipe, or under a NAME, by which files"
            " with the same columns are read from then on"
        ),
    )


def _generate(args: argparse.Namespace) -> None:
    if args.like or args.figures:
        _generate_like(args)
        return
    if given := reading_choices(args):
        raise UsageError(f"{given[0]} says how a trace is read, so it goes with --like TRACE.")
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
    if what.startswith(READY) and (needless := _profile_choices(args)):
        raise UsageError(
            f"{needless[0]} goes with a profile, but {what} already defines this. Remove the"
            " option."
        )
    if what.startswith("sample:"):
        _folder_of(out / "x")
        jobs, machines = _writing(out, lambda: write_sample(what.removeprefix("sample:"), out))
        print(f"{jobs}\n{machines}")
        return
    _table_name(out)
    trace = load_source(TraceSpec(what)).trace if what.startswith(MADE) else _look_alike(what, args)
    _folder_of(out)
    _writing(out, lambda: write_trace(trace, out))
    _say_written(out, trace)


def _say_written(out: Path, trace: Trace) -> None:
    print(
        f"{out}: {plural(len(trace), 'job')} over {trace.span_s / 86_400:.1f} days,"
        f" {trace.gpu_seconds / 3600:,.0f} GPU-hours"
    )


def _generate_like(args: argparse.Namespace) -> None:
    needless = [f"--{name}" for name in ("jobs", "days", "history") if getattr(args, name)]
    if not args.like or args.what or args.profile or needless:
        extra = args.what or (needless or ["--profile" if args.profile else "--figures"])[0]
        raise UsageError(
            f"{extra} does not fit here: a look-alike is made by --like TRACE with --load, --seed,"
            " --cluster, --figures and --out."
        )
    if not args.out and not args.figures:
        raise UsageError("Nothing to write: give --out FILE.csv, --figures FILE.json, or both.")
    if args.out:
        _table_name(Path(args.out))
    load, seed = 1.0 if args.load is None else args.load, args.seed or 0
    cluster = cluster_of(args.cluster) if args.cluster else None
    known = _figures_in(args.like)
    if known is None:
        args.trace = args.like
        _, source = settled(
            trace_spec(args), args, lambda spec: load_source(spec, max_mb=args.max_mb)
        )
        machines = cluster or cluster_for(source).cluster
        spec = likeness.look_alike(source.trace, load=load, seed=seed, cluster=machines)
        print(likeness.fit_sentence(likeness.how_like(source.trace, seed)))
    else:
        changes = {"load": args.load, "seed": args.seed} | (
            {"cluster": likeness.short(cluster)} if cluster else {}
        )
        given = {name: value for name, value in changes.items() if value is not None}
        spec = TraceSpec(f"{MADE}{Spec.of('like', **{**known.values, **given})}")
    if args.figures:
        path = Path(args.figures)
        _folder_of(path)
        _writing(path, lambda: path.write_text(likeness.document(spec), encoding="utf-8"))
        print(f"{path}: the fitted figures, without names, ids and dates. {likeness.PRIVACY}")
    if args.out:
        out, trace = Path(args.out), load_source(spec).trace
        _folder_of(out)
        _writing(out, lambda: write_trace(trace, out))
        _say_written(out, trace)


def _figures_in(place: str) -> Spec | None:
    """Return the figures that a file holds; None = it is a trace."""
    if not place.lower().endswith(".json"):
        return None
    path = Path(place)
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        return None  # reading it as a trace says what is wrong
    return likeness.figures_of(read_text(path, "a file of figures"))


def _profile_choices(args: argparse.Namespace) -> list[str]:
    """Return the given arguments that say how a profile is drawn."""
    return [
        f"--{name}"
        for name in ("jobs", "seed", "load", "days", "cluster", "history")
        if getattr(args, name) not in (None, False)
    ]


def _look_alike(profile: str, args: argparse.Namespace) -> Trace:
    cluster = cluster_of(args.cluster) if args.cluster else None
    if args.history and cluster is None:
        raise UsageError(
            "--history needs --cluster, because the made start times depend on its GPUs."
        )
    jobs, load = 1000 if args.jobs is None else args.jobs, 0.9 if args.load is None else args.load
    seed = args.seed or 0
    trace = generate(profile, jobs=jobs, seed=seed, cluster=cluster, load=load, days=args.days)
    return with_history(trace, cluster, seed) if cluster is not None and args.history else trace


def _convert(args: argparse.Namespace) -> None:
    out = Path(args.out)
    _table_name(out)
    if args.anonymise and args.report:
        raise UsageError(
            "--report lists rows with the ids and cells of the file, so it does not go with"
            " --anonymise. Leave one of them out."
        )
    spec, found = _to_convert(args)
    trace = changed(found.trace, TraceSpec(anonymise=True)) if args.anonymise else found.trace
    _folder_of(out)
    _writing(out, lambda: write_trace(trace, out))
    account = found.account
    if args.report:
        report = Path(args.report)
        _folder_of(report)
        text = (
            found.imported.issues_csv() if found.imported else "row,job_id,action,reason,detail\n"
        )
        _writing(report, lambda: report.write_text(text, encoding="utf-8", newline=""))
    if args.save_recipe:
        _save_recipe(args, spec, found)
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
                for line in ways(offer):
                    print(f"    {line}")


def _save_recipe(args: argparse.Namespace, spec: TraceSpec, found: Source) -> None:
    if found.imported is None or len(args.files) > 1:
        raise UsageError("--save-recipe keeps how one file was read. Convert one file with it.")
    path = Path(spec.source).expanduser()
    fingerprint = peek(path).fingerprint
    name = Path(args.save_recipe).stem
    recipe = of_import(path.name, found.imported, spec.choices(), fingerprint, name)
    sys.stderr.write(f"{keep(recipe, args.save_recipe)}: how {path.name} was read.\n")


def _to_convert(args: argparse.Namespace) -> tuple[TraceSpec, Source]:
    places = [*args.files, *([args.trace] if args.trace else [])]
    if not places:
        raise UsageError("Nothing to convert: name a file, sample:NAME or made:NAME.")
    if len(places) == 1:
        args.trace = places[0]
        _refuse_machines(Path(places[0]))
        return settled(trace_spec(args), args, lambda spec: load_source(spec, max_mb=args.max_mb))
    if ready := next((place for place in places if place.startswith(READY)), ""):
        raise UsageError(f"{ready} is a trace by itself. Convert it alone.")
    groups = [tuple(places)] if args.format or args.recipe else _jobs_among(places, args.merge)
    read = {" + ".join(one): _read_one(args, one) for one in groups}
    first, _ = next(iter(read.values()))
    if len(read) == 1:
        return next(iter(read.values()))
    return first, merged({name: source for name, (_, source) in read.items()})


def _read_one(args: argparse.Namespace, places: Sequence[str]) -> tuple[TraceSpec, Source]:
    """Read one trace, whose tables may be several files."""
    args.trace = places[0]
    return settled(
        trace_spec(args),
        args,
        lambda one: (
            load_files(places, one.fmt, one.choices(), max_mb=args.max_mb)
            if len(places) > 1
            else load_source(one, max_mb=args.max_mb)
        ),
    )


def _refuse_machines(path: Path) -> None:
    """Say what a file is that describes machines, before its columns are asked for.

    Raises
    ------
    UsageError
        If it is one.
    """
    try:
        data = path.read_bytes() if path.stat().st_size <= LARGEST else b""
    except (OSError, ValueError):
        return  # reading says what is wrong with it
    if data and (found := recognised(path.name, data)) is not None:
        nodes = plural(len(found.cluster.nodes), "node")
        raise UsageError(
            f"{path.name} describes machines, not jobs: {nodes} with"
            f" {plural(found.cluster.gpus, 'GPU')}. Name a file of jobs, and give this one as"
            " --cluster of a run."
        )


def _jobs_among(places: Sequence[str], merge: bool) -> list[tuple[str, ...]]:
    """Return the traces among several files, each with the files of its tables; say what the others
    are.

    Raises
    ------
    TrainyardError
        If none of them holds jobs, or several are traces of their own and are not to be merged.
    """
    try:
        files = {place: Path(place).read_bytes() for place in dict.fromkeys(places)}
    except OSError as error:
        raise UsageError(
            f"{error.filename}: this file cannot be read ({error.strerror})."
        ) from error
    found = sort_out(files)
    sys.stderr.writelines(f"{sentence}\n" for sentence in found.refused)
    sys.stderr.writelines(
        f"{name} describes machines, not jobs: give it as --cluster of a run.\n"
        for name in found.machines
    )
    if len(found.traces) > 1 and not merge:
        named = "; ".join(" + ".join(names) for names in found.traces)
        raise UsageError(
            f"These are traces of their own: {named}. Convert one at a time, or make one of them"
            " with --merge."
        )
    if not found.traces:
        raise UsageError("None of these files holds jobs, so nothing was converted.")
    return list(found.traces)


def _table_name(path: Path) -> None:
    if path.suffix not in (".csv", ".parquet"):
        raise UsageError(f"{path}: the name must end in .csv or .parquet.")


def _folder_of(path: Path) -> None:
    _writing(path.parent, lambda: path.parent.mkdir(parents=True, exist_ok=True))


def _writing(path: Path, write: Callable[[], T]) -> T:
    try:
        return write()
    except OSError as error:
        raise UsageError(
            f"{path}: this cannot be written ({error.strerror or error}). Choose another place."
        ) from error
