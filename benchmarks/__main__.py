"""Runs the groups named on the command line, or all of them."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from benchmarks import (
    aiturbo,
    app,
    asrpt,
    dashboard,
    dp_sample,
    elastic,
    fast,
    gavel,
    growth,
    hadar,
    kernel,
    kueue,
    metrics,
    reading,
    shares,
    slider,
    slurm,
    sweep,
)

GROUPS = {
    "kernel": kernel.main,
    "fast": fast.main,
    "reading": reading.main,
    "metrics": metrics.main,
    "elastic": elastic.main,
    "dp_sample": dp_sample.main,
    "shares": shares.main,
    "gavel": gavel.main,
    "hadar": hadar.main,
    "growth": growth.main,
    "asrpt": asrpt.main,
    "aiturbo": aiturbo.main,
    "kueue": kueue.main,
    "slurm": slurm.main,
    "app": app.main,
    "dashboard": dashboard.main,
    "sweep": sweep.main,
    "slider": slider.main,
}


def run(arguments: list[str]) -> int:
    """Run groups; options go to each. Return 1 if a budget is not held."""
    parser = ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument(
        "groups", nargs="*", metavar="GROUP", help=f"{', '.join(GROUPS)}; none = all of them"
    )
    chosen, options = parser.parse_known_args(arguments)
    names = chosen.groups or list(GROUPS)
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        print(f"There is no group '{unknown[0]}'. Groups: {', '.join(GROUPS)}.", file=sys.stderr)
        return 2
    over: list[str] = []
    for name in names:
        print(f"# {name}", flush=True)
        over += GROUPS[name](options)
    for sentence in over:
        print(f"Over budget: {sentence}.", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
