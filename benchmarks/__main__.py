"""Run the groups named on the command line, or all of them."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from benchmarks import (
    aiturbo,
    app,
    asrpt,
    dashboard,
    elastic,
    estimates,
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
    "estimates": estimates.main,
    "reading": reading.main,
    "metrics": metrics.main,
    "elastic": elastic.main,
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
    """Run groups with all options; return 1 above a budget, 2 for an unknown group."""
    parser = ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument(
        "groups", nargs="*", metavar="GROUP", help=f"{', '.join(GROUPS)}; none = all"
    )
    chosen, options = parser.parse_known_args(arguments)
    names = chosen.groups or list(GROUPS)
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        print(f"No group '{unknown[0]}'. Groups: {', '.join(GROUPS)}.", file=sys.stderr)
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
