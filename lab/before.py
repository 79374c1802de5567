"""What is to be said of a study before it runs on the command line: who cannot run, what will be different, and which jobs will never be done."""

from __future__ import annotations

from typing import Final

import numpy as np

from lab import catalog, profiles, turns
from lab.clusters import machines
from lab.start import RETRIES
from lab.study import Study
from lab.words import plural
from sim.endings import HOPELESS
from sim.perf.model import Needing, Staffed
from sim.trace import Trace

_ROUNDING_GB: Final = 1e-9


def remarks(study: Study, trace: Trace) -> list[str]:
    """Return what will run differently than one might think, and which jobs never will, as sentences; nothing on policies that cannot run here."""
    base = study.base
    choices = [catalog.allocator(spec, trace, base.perf) for spec in study.allocators]
    said: list[str] = []
    gpus = int(trace.numbers("num_gpus").max(initial=0.0))
    for label, spec, choice in zip(study.labels, study.allocators, choices, strict=True):
        if not choice.reason:
            said += [f"{label}: {sentence}" for sentence in (*choice.remarks, *turns.warnings(spec, base.overheads, gpus))]
    if not profiles.is_profiled(base.perf):  # what a profile cannot hold has been said, with the ways out
        said += machines.impossible(trace, base.cluster, catalog.instance("perf", base.perf)).sentences()
    return said + _tried_for_ever(study, trace)


def _tried_for_ever(study: Study, trace: Trace) -> list[str]:
    perf = catalog.instance("perf", study.base.perf)
    if not perf.staffed or catalog.instance("faults", study.base.faults).retries >= 0:
        return []
    model = perf.bind(trace, study.base.cluster)
    if not (isinstance(model, Staffed) and isinstance(model, Needing)):
        return []
    roles, used = model.roles(), model.resources()
    asked = np.column_stack((roles.worker_mem_gb, roles.server_mem_gb))
    short = int(((asked > 0) & (used[:, 1::2] > asked + _ROUNDING_GB)).any(axis=1).sum())
    if not short:
        return []
    return [
        f"What {plural(short, 'job')} asked for will run out of memory: unless a policy gives more, such a job is tried again for ever, and after {HOPELESS:,} "
        f"times the run is given up. Set a limit, e.g. --set faults.retries={RETRIES}."
    ]
