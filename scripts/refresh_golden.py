"""Compute golden summaries or page sentences, print the changes, and store them.

python -m scripts.refresh_golden [--sentences]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from sim.result import RESULTS_VERSION
from tests.golden import scenarios
from tests.golden.scenarios import compute, differences, path_of, stored
from tests.pages import snapshots


def main(arguments: Sequence[str] | None = None) -> int:
    """Store all results; keep changed ones of an equal `RESULTS_VERSION` and return 1."""
    parser = argparse.ArgumentParser(prog="python -m scripts.refresh_golden", description=__doc__)
    parser.add_argument(
        "--unreleased",
        action="store_true",
        help="store changed results under the same, unreleased version",
    )
    parser.add_argument("--sentences", action="store_true", help="store the page sentences instead")
    options = parser.parse_args(arguments)
    if options.sentences:
        return _refresh_sentences()
    refused = 0
    for scenario in scenarios.SCENARIOS:
        kept, runs = stored(scenario), compute(scenario)
        changed = differences(kept["runs"], runs)
        for line in changed:
            print(f"{scenario} {line}")
        for name in runs.keys() - kept["runs"].keys():
            print(f"{scenario} {name}: new")
        if changed and kept["results_version"] == RESULTS_VERSION and not options.unreleased:
            refused += 1
            continue
        path_of(scenario).write_text(
            json.dumps({"results_version": RESULTS_VERSION, "runs": runs}, indent=1) + "\n", "utf-8"
        )
    if refused:
        print(
            f"{refused} scenarios changed but RESULTS_VERSION is still {RESULTS_VERSION}. Raise it"
            " in sim/result.py and run this again."
        )
    return int(bool(refused))


def _refresh_sentences() -> int:
    """Store the sentences of all pages and print the changes."""
    for page in snapshots.PAGES:
        changed = snapshots.difference(page)
        if changed:
            print(changed)
        snapshots.path_of(page).write_text(snapshots.compute(page), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
