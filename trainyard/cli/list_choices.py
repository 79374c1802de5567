"""The ``list`` command: names the policies, formats, samples and other choices."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from allocators import LEFT_OUT
from jobtraces.generate import PROFILES
from sim.params import ParamInfo
from trainyard.cli.errors import UsageError
from trainyard.study import catalog
from trainyard.traces.samples import SAMPLES

_LISTS = (
    "policies",
    "formats",
    "samples",
    "workloads",
    "profiles",
    "models",
    "estimators",
    "checkpoints",
    "params",
)


def add_list(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard list``."""
    parser.set_defaults(command=_print_list)
    parser.add_argument(
        "what",
        choices=_LISTS,
        nargs="?",
        type=lambda word: "policies" if word == "allocators" else word,
        help="list to show; without it, all lists by name",
    )
    parser.add_argument(
        "name",
        nargs="?",
        help="for params: a policy, a model, made:WORKLOAD, overheads or faults",
    )


def _print_list(args: argparse.Namespace) -> None:
    """Print one list or the parameters of one choice; without arguments, the names of all."""
    if args.what == "params":
        if not args.name:
            raise UsageError("list params needs a name, e.g. python -m trainyard list params fifo.")
        for info in catalog.choice_params(args.name):
            print(_format_parameter(info))
        return
    if args.name:
        raise UsageError(
            f"list {args.what} takes no name ({args.name!r}). Leave it out; only"
            " list params needs one."
        )
    if not args.what:
        for what, listed in _CHOICES.items():
            print(f"{what:<14} {', '.join(choice.name for choice in listed())}")
        print(
            f"{'params NAME':<14} the parameters of a policy, a model, made:WORKLOAD, overheads"
            " or faults"
        )
        return
    if args.what == "policies":
        sys.stderr.writelines(f"{sentence}\n" for sentence in LEFT_OUT.values())
    for choice in _CHOICES[args.what]():
        title = f"{choice.title}{': ' + choice.help if choice.help else ''}"
        print(f"{choice.name:<14} {title}".rstrip() if title else choice.name)


def _sample_entries() -> list[catalog.CatalogEntry]:
    """Return the sample traces as entries of a list."""
    return [
        catalog.CatalogEntry(name, sample.title, sample.description)
        for name, sample in SAMPLES.items()
    ]


def _profile_entries() -> list[catalog.CatalogEntry]:
    """Return the profiles of generated traces as entries of a list."""
    return [catalog.CatalogEntry(name, "", "") for name in PROFILES]


_CHOICES: Final[Mapping[str, Callable[[], Sequence[catalog.CatalogEntry]]]] = {
    "policies": catalog.allocator_choices,
    "formats": catalog.formats,
    "samples": _sample_entries,
    "workloads": catalog.workloads,
    "profiles": _profile_entries,
    "models": catalog.perf_models,
    "estimators": catalog.estimators,
    "checkpoints": catalog.checkpoints,
}


def _format_parameter(info: ParamInfo) -> str:
    """Return one line on a parameter: name, kind, default, unit, range and help."""
    bounds = (
        f"{'' if info.low is None else f'{info.low:g}'}..{'' if info.high is None else f'{info.high:g}'}"  # noqa: E501
        if (info.low, info.high) != (None, None)
        else ""
    )
    allowed = "|".join(info.choices) or bounds
    default = (
        "/".join(f"{item:g}" for item in info.default)
        if isinstance(info.default, tuple)
        else info.default
    )
    return f"{info.name:<24} {info.kind:<8} default {default} {info.unit}  {allowed}  {info.help}".rstrip()  # noqa: E501
