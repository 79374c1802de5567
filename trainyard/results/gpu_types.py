"""What the results of a study say of its GPU types: who had which, how busy and dear they were, what allocators noted, and finish-time fairness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sim.metrics import note_families, quantiles, ratios
from sim.perf.lookup import used_types
from trainyard.results.outcomes import Shown, measured_jobs
from trainyard.store import Entry

Frames = Mapping[str, pd.DataFrame]


@dataclass(frozen=True, eq=False)
class TypeReport:
    """The complete policies of a study on a cluster of several GPU types, first repeats.

    Parameters
    ----------
    types : tuple of str
        Those of which there are nodes.
    shares : mapping of DataFrame
        Title -> see `sim.metrics.type_shares`.
    use : mapping of DataFrame
        Title -> see `sim.metrics.type_use`.
    notes : mapping of DataFrame
        Title -> see `sim.metrics.note_series`; only of policies that note anything.
    fairness : mapping of DataFrame
        Title -> `share` and `rho` against the isolated run time, see `sim.metrics.isolated_s`.
    """

    types: tuple[str, ...]
    shares: Frames
    use: Frames
    notes: Frames
    fairness: Frames

    def families(self, title: str) -> Mapping[str, Mapping[str, str]]:
        """Return the kinds of notes of a policy: family -> name of the note -> what its line is called."""
        return note_families(list(dict.fromkeys(self.notes[title]["name"].astype(str))), self.types)


def several_types(shown: Shown) -> bool:
    """Tell whether the cluster of a study has nodes of more than one GPU type."""
    return len(used_types(shown.study.base.cluster)) > 1


def type_report(shown: Shown) -> TypeReport:
    """Collect what the complete policies left behind.

    Raises
    ------
    StoreError
        If a stored result was removed meanwhile, or is older than these figures.
    """
    firsts = _firsts(shown)
    noted = {title: frame for title, entry in firsts.items() if len(frame := entry.chart("notes"))}
    shares, use, fair = ({title: entry.chart(kind) for title, entry in firsts.items()} for kind in ("types", "use", "fairness"))
    return TypeReport(used_types(shown.study.base.cluster), shares, use, noted, fair)


def fairness_against(shown: Shown, reference: str) -> dict[str, pd.DataFrame]:
    """Return the finish-time fairness of the other complete policies, with the completion times under one of them as the reference.

    Parameters
    ----------
    shown : Shown
        The runs.
    reference : str
        Title of a complete policy.

    Raises
    ------
    StoreError
        If a stored result was removed meanwhile.

    Notes
    -----
    rho = completion time / completion time under the reference, job by job, over measured jobs that were completed under both.
    """
    jobs = {title: entry.jobs() for title, entry in _firsts(shown).items()}
    base = jobs.pop(reference)
    own = np.where(np.asarray(base["outcome"] == "completed"), base["finish_s"] - base["submit_s"], np.nan)
    mask = measured_jobs(base, shown.study)
    return {title: quantiles(ratios(frame, own)[mask]) for title, frame in jobs.items()}


def _firsts(shown: Shown) -> dict[str, Entry]:
    return {shown.titles[at]: shown.entries[at][0] for at in shown.places}
