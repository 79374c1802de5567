"""The ``list`` command: what can be chosen, by name."""

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
    parser.set_defaults(command=_list)
    parser.add_argument(
        "what",
        choices=_LISTS,
        nargs="?",
        type=lambda word: "policies" if word == "allocators" else word,
        help="what to show; without it, what can be shown",
    )
    parser.add_argument(
        "name",
        nargs="?",
        help="for params: a policy, a model, made:WORKLOAD, overheads or faults",
    )


def _list(args: argparse.Namespace) -> None:
    """Print the names of one list, or what can be listed."""
    if args.what == "params":
        if not args.name:
            raise UsageError("list params wants a name, e.g. python -m trainyard list params fifo.")
        for info in catalog.choice_params(args.name):
            print(_describe(info))
        return
    if args.name:
        raise UsageError(
            f"list {args.what} takes no name, so {args.name!r} is too much. Only list params wants"
            " one."
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


def _samples() -> list[catalog.CatalogEntry]:
    return [
        catalog.CatalogEntry(name, sample.title, sample.description)
        for name, sample in SAMPLES.items()
    ]


def _profiles() -> list[catalog.CatalogEntry]:
    return [catalog.CatalogEntry(name, "", "") for name in PROFILES]


_CHOICES: Final[Mapping[str, Callable[[], Sequence[catalog.CatalogEntry]]]] = {
    "policies": catalog.allocator_choices,
    "formats": catalog.formats,
    "samples": _samples,
    "workloads": catalog.workloads,
    "profiles": _profiles,
    "models": catalog.perf_models,
    "estimators": catalog.estimators,
    "checkpoints": catalog.checkpoints,
}


def _describe(info: ParamInfo) -> str:
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
