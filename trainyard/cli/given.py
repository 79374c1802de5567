"""What the arguments of the ``run`` command name: files, traces, clusters, policies, and the study
that they make together.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from os.path import isfile
from pathlib import Path
from typing import Any, Final

from allocators import REGISTRY
from jobtraces import FORMATS
from sim.cluster import Cluster
from sim.params import Spec
from trainyard.cli.errors import UsageError
from trainyard.cli.questions import add_answers, settled
from trainyard.clusters.homes import of_nodes
from trainyard.clusters.machines import read_cluster
from trainyard.results.plainest import AUTO
from trainyard.store import profiles
from trainyard.study import catalog, files, gpu_types
from trainyard.study.document import parse_json
from trainyard.study.scenario import NEW_COSTS, READY, RIGID, Scenario, TraceSpec
from trainyard.study.settings import with_settings
from trainyard.study.study import Study
from trainyard.traces.fitting import cluster_for
from trainyard.traces.own_recipes import for_file, of_text, own_text
from trainyard.traces.sources import FILE_LIMIT_MB, Source, load_source

ALL: Final = "all"
"""What stands for every policy."""
READ_CHOICES: Final = (
    *("zone", "cpu_jobs", "unfinished", "since"),
    *("time_unit", "duration_unit", "date_format"),
)


_CLUSTER_FILES: Final = (
    ".json",
    ".csv",
    ".tsv",
    ".conf",
    ".txt",
    ".log",
    ".yaml",
    ".yml",
)
_OF_NODES: Final = re.compile(r"(.+\.(?:csv|tsv|txt)):(\d{1,4})(?::([\w.-]+))?", re.IGNORECASE)
"""A list of virtual clusters, and the GPUs of a node and their type."""
_SPEED: Final = re.compile(r",([\w.-]+)=(\d+(?:\.\d+)?)(?=,|$)")
"""A GPU type and its speed, behind a cluster."""


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments on how the file of a trace is read."""
    parser.add_argument(
        "--format", metavar="F", help="read the file as this format; see: list formats"
    )
    parser.add_argument(
        "--recipe", metavar="FILE|NAME", help="read the file by this recipe; see: recipes list"
    )
    reading = parser.add_argument_group("reading a file")
    reading.add_argument(
        "--zone", metavar="NAME", help="zone of times without an offset, e.g. Asia/Shanghai"
    )
    reading.add_argument("--cpu-jobs", choices=("drop", "keep"), help="jobs without a GPU")
    reading.add_argument(
        "--unfinished", choices=("drop", "cut"), help="jobs that still ran at the end of the trace"
    )
    reading.add_argument("--since", choices=("submit", "eligible"), help="when a Slurm job enters")
    reading.add_argument(
        "--time-unit", choices=("s", "ms", "min", "h", "d"), help="unit of numeric times"
    )
    reading.add_argument(
        "--duration-unit", choices=("s", "ms", "min", "h", "d"), help="unit of durations"
    )
    reading.add_argument(
        "--date-format",
        metavar="PATTERN",
        help="how dates of a table are written, e.g. '%%d.%%m.%%Y %%H:%%M'",
    )
    reading.add_argument(
        "--map",
        metavar="NATIVE=COLUMN",
        action="append",
        help="which column is which, e.g. num_gpus=GPUs",
    )
    add_answers(reading)
    reading.add_argument(
        "--max-mb",
        metavar="MB",
        type=_megabytes,
        default=FILE_LIMIT_MB,
        help=f"largest file that is read (default {FILE_LIMIT_MB:g})",
    )


def _megabytes(text: str) -> float:
    try:
        size = float(text)
    except ValueError:
        size = -1.0
    if not 0.001 <= size <= 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a number of MB from 0.001 to 1000000")
    return size


def read_text(path: Path, what: str) -> str:
    """Return the text of a small file.

    Raises
    ------
    UsageError
        If it cannot be read.
    """
    try:
        if path.stat().st_size > 50_000_000:
            raise UsageError(f"{path}: this file is too large to be {what}. Check the path.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"{path}: {what} cannot be read ({error.strerror or error}). Check the path and the"
            " rights."
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{path}: this is not {what}, but something that is no text. Check the path."
        ) from error


def cluster_of(text: str, epoch: str = "") -> Cluster:
    """Return a cluster from a file that `trainyard.clusters.machines.read_cluster` reads, or from
    a short description. ``vc.csv:4:a100`` says what the nodes of a list of virtual clusters are,
    ``nodes.csv,12gb=0.4`` how fast a GPU type is of which no speed is known.

    Raises
    ------
    TrainyardError
        If it cannot be read, or a speed is missing.
    """
    speeds, place = dict(_SPEED.findall(text)), _SPEED.sub("", text)
    try:
        made = _described(place, epoch)
    except gpu_types.UnknownGpuTypeError as error:
        made = error.cluster
        if lacking := [name for name in error.names if name not in speeds]:
            way = "".join(f",{name}=SPEED" for name in lacking)
            raise UsageError(f"{error} Here: --cluster {text}{way}, where a V100 is 1.") from error
    prices = {kind.name: kind.price_per_gpu_hour for kind in made.types}
    for name, speed in speeds.items():
        if name not in prices:
            raise UsageError(f"{place} has no GPUs of type {name}, but {', '.join(prices)}.")
        made = gpu_types.with_figures(made, name, float(speed), prices[name])
    return made


def _described(text: str, epoch: str) -> Cluster:
    said = _OF_NODES.fullmatch(text)
    place, gpus, kind = said.groups() if said else (text, None, None)
    # Philly's list of machines has no suffix. A short form may be too long for a `Path`.
    if not place.lower().endswith(_CLUSTER_FILES) and not isfile(place):
        return gpu_types.parsed(text)
    found = read_cluster(Path(place), epoch)
    if gpus and not found.asked:
        raise UsageError(f"{place} says what its nodes are. Leave out {text[len(place) :]}.")
    if gpus:
        made = of_nodes(found.cluster, int(gpus), (kind or "").lower())
        return gpu_types.checked(made, [one.name for one in found.cluster.types])
    sys.stderr.writelines(f"{note}\n" for note in found.notes)
    if found.asked:
        sys.stderr.write(f"If they are others, say so: --cluster {place}:4:a100.\n")
    return found.cluster


def trace_spec(args: argparse.Namespace) -> TraceSpec:
    """Return the trace that the arguments name, with the choices for reading it.

    Raises
    ------
    TrainyardError
        If a choice is unknown, or there is no file that it could apply to.
    """
    needless = reading_choices(args) if args.trace.startswith(READY) else []
    if needless:
        raise UsageError(
            f"{needless[0]} says how a file is read, but {args.trace} is read already. Leave it"
            " out, or name a file."
        )
    given = {
        name: getattr(args, name) for name in READ_CHOICES if getattr(args, name, None) is not None
    }
    pairs = [pair.partition("=") for pair in args.map or ()]
    if any(not (native and equals and column) for native, equals, column in pairs):
        raise UsageError("--map wants NATIVE=COLUMN, e.g. --map num_gpus=GPUs.")
    if pairs:
        given["mapping"] = {native: column for native, _, column in pairs}
    # A name in a question, such as "lr=0.1", may hold the sign; no answer does.
    answers = [pair.rpartition("=") for pair in args.answer or ()]
    if any(not (name and equals and value) for name, equals, value in answers):
        raise UsageError("--answer wants ID=VALUE, e.g. --answer duration_unit=h.")
    if answers:
        given["answers"] = {name: value for name, _, value in answers}
    fmt, given = _by_recipe(args, given)
    return TraceSpec.of(args.trace, fmt=fmt, read=given)


def _by_recipe(args: argparse.Namespace, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return format and choices, with those of the recipe that is named, or that was kept for files
    like this one.
    """
    if args.recipe and args.format:
        raise UsageError("--format and --recipe both say how to read the file. Keep one of them.")
    if args.recipe in FORMATS:
        return args.recipe, given
    if args.recipe:
        recipe = of_text(own_text(args.recipe), args.recipe)
        return recipe.fmt, _with_recipe(recipe.choices, given)
    path = Path(args.trace).expanduser()
    if args.format or args.map or not path.is_file() or path.stat().st_size > args.max_mb * 1e6:
        return args.format or "", given
    if (own := for_file(path)) is None:
        return "", given
    sys.stderr.write(f"Read by {own.told}; --format NAME reads the file without it.\n")
    return own.fmt, _with_recipe(own.choices, given)


def _with_recipe(kept: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices of a recipe, with those that are given besides in their place."""
    both = {**kept, **given}
    if "answers" in both:
        both["answers"] = {**kept.get("answers", {}), **given.get("answers", {})}
    return both


def reading_choices(args: argparse.Namespace) -> list[str]:
    """Return the arguments that say how a file is read, as they were written."""
    return [
        f"--{name.replace('_', '-')}"
        for name in ("format", "recipe", *READ_CHOICES, "map", "answer")
        if getattr(args, name, None) is not None
    ]


def study_of(args: argparse.Namespace) -> tuple[Study, Source]:
    """Return the comparison that the arguments describe, and its jobs; under ``--perf auto`` the
    performance model is still to be chosen.

    Raises
    ------
    TrainyardError
        If something is missing, contradicts itself, or cannot be read.
    """
    if args.scenario is None:
        return _study_of_arguments(args)
    if args.cluster or args.allocator or args.perf not in (None, AUTO):
        raise UsageError(
            "--scenario holds cluster, allocators and models already; change them with --set, e.g."
            " --set cluster=16x8:v100."
        )
    if not args.trace and (given := reading_choices(args)):
        raise UsageError(
            f"{given[0]} says how a file is read, so it needs --trace FILE; the scenario keeps its"
            " own choices."
        )
    document = parse_json(read_text(Path(args.scenario), "a scenario file"), args.scenario)
    if args.trace:
        place = document["base"] if isinstance(document.get("base"), dict) else document
        kept = place.get("trace")
        found = settled(trace_spec(args), args, lambda spec: load_source(spec, max_mb=args.max_mb))[
            0
        ].to_json()
        place["trace"] = {
            **(kept if isinstance(kept, dict) else {}),
            **{key: found[key] for key in ("source", "fmt", "read")},
        }
    study = Study.from_json(profiles.localised(with_settings(document, _settings(args))))
    return study, load_source(study.base.trace, max_mb=args.max_mb)


def _study_of_arguments(args: argparse.Namespace) -> tuple[Study, Source]:
    if not args.trace:
        raise UsageError(
            "Nothing to run: give --trace FILE, --trace sample:NAME, --trace made:NAME or"
            " --scenario FILE.json."
        )
    if not args.allocator:
        raise UsageError(
            "No policy is chosen: give --policy NAME, as often as you like. python -m"
            " trainyard list policies names them."
        )
    specs = _policies(args.allocator)
    for spec in specs:
        catalog.canonical("allocator", spec)
    where, source = settled(
        trace_spec(args), args, lambda spec: load_source(spec, max_mb=args.max_mb)
    )
    cluster = cluster_of(args.cluster, source.trace.epoch) if args.cluster else _own_cluster(source)
    perf = profiles.from_file(Spec.parse(args.perf)) if args.perf not in (None, AUTO) else RIGID
    study = Study(Scenario(where, cluster, specs[0], perf, overheads=NEW_COSTS), specs)
    document = profiles.localised(with_settings(study.to_json(), _settings(args)))
    changed_study = Study.from_json(document)
    if changed_study.base.trace != where:
        source = load_source(changed_study.base.trace, max_mb=args.max_mb)
    return changed_study, source


def _policies(names: Sequence[str]) -> tuple[Spec, ...]:
    """Return the policies of these names; ``all`` stands for every registered one that is not named
    besides.
    """
    given = [files.with_texts(Spec.parse(text)) for text in names]
    known = {spec.name for spec in given}
    return tuple(
        one
        for spec in given
        for one in (
            [Spec(name) for name in REGISTRY if name not in known] if spec == Spec(ALL) else [spec]
        )
    )


def _settings(args: argparse.Namespace) -> list[str]:
    seed = [] if args.seed is None else [f"seed={args.seed}"]
    horizon = [] if args.horizon_s is None else [f"horizon_s={args.horizon_s}"]
    # First, so that single values can still be set otherwise.
    saving = [
        f"overheads.{name}={value:g}"
        for name, value in (
            catalog.checkpoint_values(args.checkpoints) if args.checkpoints else {}
        ).items()
    ]
    return [*seed, *horizon, *saving, *(args.set or ())]


def _own_cluster(source: Source) -> Cluster:
    cluster, how = cluster_for(source)
    if source.cluster is None:
        sys.stderr.write(f"No --cluster is given, so one was built from the trace. {how}\n")
    return cluster


def beside_the_trace(path: Path, source: str) -> Path:
    """Return where results are written, which must not be the trace itself.

    Raises
    ------
    UsageError
        If it is.
    """
    if path.exists() and Path(source).exists() and path.samefile(source):
        raise UsageError(f"{path} is the trace itself. Choose another folder for --jobs-out.")
    return path


def folder_of(text: str) -> Path:
    """Return a folder to write to, made if it is missing.

    Raises
    ------
    UsageError
        If it cannot be made.
    """
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{path}: the folder cannot be made ({error.strerror}). Choose another one."
        ) from error
    return path
