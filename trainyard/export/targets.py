"""The schedulers for which a what-if can be taken home."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from allocators import make
from sim.errors import ParameterError
from sim.params import Spec
from sim.trace import Trace
from trainyard.export import kubernetes, slurm
from trainyard.export.caveats import ExportRun, caveats
from trainyard.results import past
from trainyard.results.outcomes import Shown
from trainyard.results.past import Past
from trainyard.store import Store
from trainyard.study import catalog
from trainyard.study.study import Study

Nearest = Callable[[Spec, Spec], tuple[str, Spec | None]]
"""From a policy and the configuration in force: the nearest setting, in words and to simulate."""


def _nothing(after: Spec, before: Spec) -> tuple[str, Spec | None]:
    title, wanted = (catalog.allocator(spec).title for spec in (before, after))
    return f"{title} cannot run {wanted}, and none of its settings is near to it.", None


def _nothing_more(before: Sequence[ExportRun], after: Sequence[ExportRun]) -> list[str]:
    return []


class Target(NamedTuple):
    """A scheduler: the parameter of its policy that holds the configuration, all parameters that
    a patch can say, the ending of a patch's name, what writes it from both policies and caveats,
    what is nearest to a policy that it does not have, in words and to be simulated instead, and
    what else to say of the runs before and after.
    """

    file: str
    says: frozenset[str]
    suffix: str
    patch: Callable[[Spec, Spec, Sequence[str]], str]
    nearest: Nearest = _nothing
    load: Callable[[Sequence[ExportRun], Sequence[ExportRun]], list[str]] = _nothing_more


KUEUE_SETTINGS: Final[Mapping[str, str]] = {
    "fifo": "queueingStrategy: StrictFIFO in each ClusterQueue",
}
"""Policy -> the setting of Kueue that is nearest to it."""


def _near_kueue(after: Spec, before: Spec) -> tuple[str, Spec | None]:
    if after.name not in KUEUE_SETTINGS:
        return _nothing(after, before)
    nearest = (
        f"Kueue cannot run {catalog.allocator(after).title}. The nearest setting is"
        f" {KUEUE_SETTINGS[after.name]}: simulate a copy of the file with it as the second policy,"
        " and take that home."
    )
    return nearest, None


def _objects(parameter: str, nearest: Nearest = _nothing) -> Target:
    def patch(before: Spec, after: Spec, caveats: Sequence[str]) -> str:
        old, new = (str(dict(spec.params)[parameter]) for spec in (before, after))
        return kubernetes.patch(old, new, caveats)

    return Target(parameter, frozenset({parameter}), "yaml", patch, nearest)


TARGETS: Final[Mapping[str, Target]] = {
    "slurm": Target("conf", slurm.SAYS, "conf", slurm.patch, slurm.nearest, slurm.load),
    "kueue": _objects("config", _near_kueue),
    "kai": _objects("queues"),
}
"""Name of a policy -> how it is taken home."""


def patch(before: Spec, after: Spec, caveats: Sequence[str] = ()) -> str:
    """Return what turns the configuration in force into the one that was simulated.

    Parameters
    ----------
    before, after : Spec
        One policy of `TARGETS`, both with the text of their file.
    caveats : sequence of str
        What the patch rests on; without them it only says whether there is one.

    Raises
    ------
    ParameterError
        If a patch cannot say the difference, with what to do instead.
    """
    target = TARGETS.get(before.name)
    if target is None:
        raise ParameterError(
            f"{before.name} is no scheduler with a configuration of its own; known are"
            f" {', '.join(TARGETS)}."
        )
    if after.name != before.name:
        raise ParameterError(nearest(before, after)[0])
    if not all(map(has_file, (before, after))):
        raise ParameterError(
            f"Give two policies, {before.name}:{target.file}=FILE as it is in force, then the same"
            " as it is to be."
        )
    others = [
        {key: value for key, value in spec.params if key not in target.says}
        for spec in (before, after)
    ]
    if others[0] != others[1]:
        differing = sorted({key for key, _ in others[0].items() ^ others[1].items()})
        raise ParameterError(
            f"The two policies differ in {', '.join(differing)}, which a patch cannot say. Give"
            " both the same."
        )
    for spec in (before, after):
        make(spec)  # refuses a file that cannot be read
    return target.patch(before, after, caveats)


def nearest(before: Spec, after: Spec) -> tuple[str, Spec | None]:
    """Return what of the scheduler in force, one of `TARGETS`, is nearest to another policy: in
    words, and to be simulated.
    """
    return TARGETS[before.name].nearest(after, before)


def has_file(spec: Spec) -> bool:
    """Tell whether a policy is a scheduler of `TARGETS` with the configuration of a site."""
    target = TARGETS.get(spec.name)
    return target is not None and bool(dict(spec.params).get(target.file))


def in_force(study: Study) -> int | None:
    """Return the place of the policy that a patch of a study begins with: the baseline, or else the
    first with the configuration of a site; None = there is none.
    """
    order = sorted(range(len(study.allocators)), key=lambda at: at != study.baseline)
    return next((at for at in order if has_file(study.allocators[at])), None)


def of_runs(runs: Shown, old: int, at: int, trace: Trace, store: Store) -> str:
    """Return the patch from one policy of finished runs to another one.

    Parameters
    ----------
    runs : Shown
        The runs.
    old, at : int
        Places of the policy in force, and of the one that was simulated in its stead.
    trace : Trace
        The jobs.
    store : Store
        Which knows what was checked against the past.

    Raises
    ------
    TrainyardError
        As `patch`; or the trace is gone.
    """
    before, after = (
        [ExportRun.stored(entry) for entry in runs.entries[place]] for place in (old, at)
    )
    return of_simulated(trace, before, after, past.of_policy(runs.study, old, store))


def of_simulated(
    trace: Trace, before: Sequence[ExportRun], after: Sequence[ExportRun], known: Past | None
) -> str:
    """Return the patch from one configuration that was simulated to another one.

    Parameters
    ----------
    trace, before, after, known
        As `trainyard.export.caveats.caveats` takes them.

    Raises
    ------
    ParameterError
        As `patch`.
    """
    old, new = (runs[0].scenario.allocator for runs in (before, after))
    target = TARGETS.get(old.name)
    more = target.load(before, after) if target is not None else []
    return patch(old, new, [*caveats(trace, before, after, known), *more])
