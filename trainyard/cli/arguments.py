"""Converts command-line arguments into traces, clusters, policies and a study."""

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
from trainyard.cli.questions import add_answers, resolve_questions
from trainyard.clusters.machines import read_cluster
from trainyard.clusters.virtual_clusters import set_node_gpus
from trainyard.results.simplest_model import AUTO
from trainyard.store import profiles
from trainyard.study import catalog, files, gpu_types
from trainyard.study.document import parse_json
from trainyard.study.scenario import NEW_COSTS, READY, RIGID, Scenario, TraceSpec
from trainyard.study.settings import with_settings
from trainyard.study.study import Study
from trainyard.traces.fitting import fit_cluster
from trainyard.traces.own_recipes import parse_own_recipe, recipe_for_file, recipe_text
from trainyard.traces.sources import FILE_LIMIT_MB, Source, load_source

ALL: Final = "all"
"""Policy argument that selects every registered policy."""
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
"""A file of virtual clusters with GPUs per node and optional GPU type: vc.csv:4:a100."""
_SPEED: Final = re.compile(r",([\w.-]+)=(\d+(?:\.\d+)?)(?=,|$)")
"""A GPU type and its speed after a cluster: nodes.csv,12gb=0.4."""


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that control how a trace file is read."""
    parser.add_argument(
        "--format", metavar="F", help="read the file as this format; see: list formats"
    )
    parser.add_argument(
        "--recipe", metavar="FILE|NAME", help="read the file by this recipe; see: recipes list"
    )
    reading = parser.add_argument_group("reading a file")
    reading.add_argument(
        "--zone", metavar="NAME", help="time zone of times without an offset, e.g. Asia/Shanghai"
    )
    reading.add_argument(
        "--cpu-jobs", choices=("drop", "keep"), help="drop or keep jobs without a GPU"
    )
    reading.add_argument(
        "--unfinished",
        choices=("drop", "cut"),
        help="drop or cut jobs running at the end",
    )
    reading.add_argument(
        "--since", choices=("submit", "eligible"), help="when a Slurm job enters the queue"
    )
    reading.add_argument(
        "--time-unit", choices=("s", "ms", "min", "h", "d"), help="unit of numeric times"
    )
    reading.add_argument(
        "--duration-unit", choices=("s", "ms", "min", "h", "d"), help="unit of durations"
    )
    reading.add_argument(
        "--date-format",
        metavar="PATTERN",
        help="date format of a table, e.g. '%%d.%%m.%%Y %%H:%%M'",
    )
    reading.add_argument(
        "--map",
        metavar="NATIVE=COLUMN",
        action="append",
        help="name the column of a field, e.g. num_gpus=GPUs",
    )
    add_answers(reading)
    reading.add_argument(
        "--max-mb",
        metavar="MB",
        type=_parse_megabytes,
        default=FILE_LIMIT_MB,
        help=f"largest file that is read (default {FILE_LIMIT_MB:g})",
    )


def _parse_megabytes(text: str) -> float:
    """Return --max-mb as a number from 0.001 to 1e6, or raise an argparse error."""
    try:
        size = float(text)
    except ValueError:
        size = -1.0
    if not 0.001 <= size <= 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a number of MB from 0.001 to 1000000")
    return size


def read_text(path: Path, description: str) -> str:
    """Return the text of a UTF-8 file of up to 50 MB; `description` names it in errors.

    Raises
    ------
    UsageError
        If it cannot be read.
    """
    try:
        if path.stat().st_size > 50_000_000:
            raise UsageError(f"{path}: this file is too large to be {description}. Check the path.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"{path}: {description} cannot be read ({error.strerror or error}). Check the path"
            " and the rights."
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{path}: this is not {description}, but something that is no text. Check the path."
        ) from error


def parse_cluster(text: str, epoch: str = "") -> Cluster:
    """Return the cluster that a file or a short description names, with speeds from the text.

    Raises
    ------
    TrainyardError
        If it cannot be read, or a speed is missing.
    """
    speeds, place = dict(_SPEED.findall(text)), _SPEED.sub("", text)
    try:
        cluster = _cluster_from_text(place, epoch)
    except gpu_types.UnknownGpuTypeError as error:
        cluster = error.cluster
        if lacking := [name for name in error.names if name not in speeds]:
            way = "".join(f",{name}=SPEED" for name in lacking)
            raise UsageError(f"{error} Here: --cluster {text}{way}, where a V100 is 1.") from error
    prices = {kind.name: kind.price_per_gpu_hour for kind in cluster.types}
    for name, speed in speeds.items():
        if name not in prices:
            raise UsageError(f"{place} has no GPUs of type {name}. Its types: {', '.join(prices)}.")
        cluster = gpu_types.with_figures(cluster, name, float(speed), prices[name])
    return cluster


def _cluster_from_text(text: str, epoch: str) -> Cluster:
    """Return the cluster of a file or a short form; print notes on a file to stderr.

    A file of virtual clusters may be followed by GPUs per node and type: vc.csv:4:a100.
    """
    match = _OF_NODES.fullmatch(text)
    place, gpus, kind = match.groups() if match else (text, None, None)
    # Philly's machine list has no suffix. A short form may be too long for a `Path`.
    if not place.lower().endswith(_CLUSTER_FILES) and not isfile(place):
        return gpu_types.parse_cluster(text)
    machines = read_cluster(Path(place), epoch)
    if gpus and not machines.questions:
        raise UsageError(f"{place} already describes its nodes. Leave out {text[len(place) :]}.")
    if gpus:
        cluster = set_node_gpus(machines.cluster, int(gpus), (kind or "").lower())
        return gpu_types.check_types(cluster, [one.name for one in machines.cluster.types])
    sys.stderr.writelines(f"{note}\n" for note in machines.notes)
    if machines.questions:
        sys.stderr.write(f"To set GPUs per node and type: --cluster {place}:4:a100.\n")
    return machines.cluster


def trace_spec(args: argparse.Namespace) -> TraceSpec:
    """Return the trace that the arguments name, with its reading choices.

    Raises
    ------
    TrainyardError
        If a choice is unknown, or no file is named to which it applies.
    """
    needless = used_reading_options(args) if args.trace.startswith(READY) else []
    if needless:
        raise UsageError(
            f"{needless[0]} controls how a file is read, but {args.trace} is not a file. Leave it"
            " out, or name a file."
        )
    given = {
        name: getattr(args, name) for name in READ_CHOICES if getattr(args, name, None) is not None
    }
    pairs = [pair.partition("=") for pair in args.map or ()]
    if any(not (native and equals and column) for native, equals, column in pairs):
        raise UsageError("--map needs NATIVE=COLUMN, e.g. --map num_gpus=GPUs.")
    if pairs:
        given["mapping"] = {native: column for native, _, column in pairs}
    # The id of a question may contain "=", e.g. "lr=0.1"; an answer never does.
    answers = [pair.rpartition("=") for pair in args.answer or ()]
    if any(not (name and equals and value) for name, equals, value in answers):
        raise UsageError("--answer needs ID=VALUE, e.g. --answer duration_unit=h.")
    if answers:
        given["answers"] = {name: value for name, _, value in answers}
    fmt, given = _apply_recipe(args, given)
    return TraceSpec.of(args.trace, fmt=fmt, read=given)


def _apply_recipe(args: argparse.Namespace, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return format and choices, completed by the recipe named or saved for such files.

    A saved recipe that is applied is printed to stderr.
    """
    if args.recipe and args.format:
        raise UsageError("--format and --recipe both set how the file is read. Keep one of them.")
    if args.recipe in FORMATS:
        return args.recipe, given
    if args.recipe:
        recipe = parse_own_recipe(recipe_text(args.recipe), args.recipe)
        return recipe.fmt, _merge_choices(recipe.choices, given)
    path = Path(args.trace).expanduser()
    if args.format or args.map or not path.is_file() or path.stat().st_size > args.max_mb * 1e6:
        return args.format or "", given
    if (own := recipe_for_file(path)) is None:
        return "", given
    sys.stderr.write(f"Read by {own.label}; --format NAME reads the file without it.\n")
    return own.fmt, _merge_choices(own.choices, given)


def _merge_choices(recipe_choices: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices of a recipe, overridden by the given ones; answers one by one."""
    both = {**recipe_choices, **given}
    if "answers" in both:
        both["answers"] = {**recipe_choices.get("answers", {}), **given.get("answers", {})}
    return both


def used_reading_options(args: argparse.Namespace) -> list[str]:
    """Return the given options that control how a file is read, e.g. ["--zone"]."""
    return [
        f"--{name.replace('_', '-')}"
        for name in ("format", "recipe", *READ_CHOICES, "map", "answer")
        if getattr(args, name, None) is not None
    ]


def load_study(args: argparse.Namespace) -> tuple[Study, Source]:
    """Return the study that the arguments describe, and its jobs.

    Raises
    ------
    TrainyardError
        If something is missing, contradicts itself, or cannot be read.
    """
    if args.scenario is None:
        return _study_from_arguments(args)
    if args.cluster or args.allocator or args.perf not in (None, AUTO):
        raise UsageError(
            "--scenario already sets cluster, policies and models; change them with --set, e.g."
            " --set cluster=16x8:v100."
        )
    if not args.trace and (given := used_reading_options(args)):
        raise UsageError(
            f"{given[0]} controls how a file is read, so it needs --trace FILE; the scenario keeps"
            " its own choices."
        )
    document = parse_json(read_text(Path(args.scenario), "a scenario file"), args.scenario)
    if args.trace:
        place = document["base"] if isinstance(document.get("base"), dict) else document
        old_trace = place.get("trace")
        new_trace = resolve_questions(
            trace_spec(args), args, lambda spec: load_source(spec, max_mb=args.max_mb)
        )[0].to_json()
        place["trace"] = {
            **(old_trace if isinstance(old_trace, dict) else {}),
            **{key: new_trace[key] for key in ("source", "fmt", "read")},
        }
    study = Study.from_json(
        profiles.with_contents(with_settings(document, _setting_overrides(args)))
    )
    return study, load_source(study.base.trace, max_mb=args.max_mb)


def _study_from_arguments(args: argparse.Namespace) -> tuple[Study, Source]:
    """Return the study and its jobs from --trace, --cluster, --policy and --perf."""
    if not args.trace:
        raise UsageError(
            "Nothing to run: give --trace FILE, --trace sample:NAME, --trace made:NAME or"
            " --scenario FILE.json."
        )
    if not args.allocator:
        raise UsageError(
            "No policy is given: add --policy NAME, once per policy. python -m trainyard list"
            " policies names them."
        )
    specs = _parse_policies(args.allocator)
    for spec in specs:
        catalog.canonical("allocator", spec)
    where, source = resolve_questions(
        trace_spec(args), args, lambda spec: load_source(spec, max_mb=args.max_mb)
    )
    cluster = (
        parse_cluster(args.cluster, source.trace.epoch)
        if args.cluster
        else _default_cluster(source)
    )
    perf = profiles.from_file(Spec.parse(args.perf)) if args.perf not in (None, AUTO) else RIGID
    study = Study(Scenario(where, cluster, specs[0], perf, overheads=NEW_COSTS), specs)
    document = profiles.with_contents(with_settings(study.to_json(), _setting_overrides(args)))
    changed_study = Study.from_json(document)
    if changed_study.base.trace != where:
        source = load_source(changed_study.base.trace, max_mb=args.max_mb)
    return changed_study, source


def _parse_policies(names: Sequence[str]) -> tuple[Spec, ...]:
    """Return the named policies; ``all`` adds every registered policy not named."""
    given = [files.read_file_parameters(Spec.parse(text)) for text in names]
    named = {spec.name for spec in given}
    return tuple(
        one
        for spec in given
        for one in (
            [Spec(name) for name in REGISTRY if name not in named] if spec == Spec(ALL) else [spec]
        )
    )


def _setting_overrides(args: argparse.Namespace) -> list[str]:
    """Return --seed, --horizon-s, --checkpoints and --set as path=value texts."""
    seed = [] if args.seed is None else [f"seed={args.seed}"]
    horizon = [] if args.horizon_s is None else [f"horizon_s={args.horizon_s}"]
    # Before --set, which can override single values.
    checkpoint_costs = [
        f"overheads.{name}={value:g}"
        for name, value in (
            catalog.checkpoint_values(args.checkpoints) if args.checkpoints else {}
        ).items()
    ]
    return [*seed, *horizon, *checkpoint_costs, *(args.set or ())]


def _default_cluster(source: Source) -> Cluster:
    """Return the cluster that comes with the jobs; without one, fit one and print how."""
    cluster, how = fit_cluster(source)
    if source.cluster is None:
        sys.stderr.write(f"No --cluster is given, so one was built from the trace. {how}\n")
    return cluster


def check_not_trace(path: Path, source: str) -> Path:
    """Return an output path after checking that it is not the trace itself.

    Raises
    ------
    UsageError
        If the path is the trace.
    """
    if path.exists() and Path(source).exists() and path.samefile(source):
        raise UsageError(f"{path} is the trace itself. Choose another folder for --jobs-out.")
    return path


def make_folder(text: str) -> Path:
    """Return a folder to write to, created if missing.

    Raises
    ------
    UsageError
        If it cannot be created.
    """
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{path}: the folder cannot be created ({error.strerror}). Choose another one."
        ) from error
    return path
