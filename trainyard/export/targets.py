"""Schedulers to which a simulated configuration can be exported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from allocators import make
from sim.errors import ParameterError
from sim.params import Spec
from sim.trace import Trace
from trainyard.export import kubernetes, slurm
from trainyard.export.caveats import ExportRun, caveats
from trainyard.results import backtest_verdict
from trainyard.results.backtest_verdict import Past
from trainyard.results.outcomes import StudyResults
from trainyard.store import Store
from trainyard.study import catalog
from trainyard.study.study import Study

Nearest = Callable[[Spec, Spec], tuple[str, Spec | None]]
"""(policy, configuration in force) -> (sentence on the nearest setting, that setting or None)."""


def _no_nearest(after: Spec, before: Spec) -> tuple[str, Spec | None]:
    """Return the sentence that no setting comes near the policy `after`, and None."""
    scheduler, policy = (catalog.allocator(spec).title for spec in (before, after))
    return f"{scheduler} cannot run {policy}, and none of its settings comes near it.", None


def _no_notes(before: Sequence[ExportRun], after: Sequence[ExportRun]) -> list[str]:
    """Return no additional comments."""
    return []


class Target(NamedTuple):
    """A scheduler to which configurations are exported.

    Attributes
    ----------
    file : str
        Parameter of its policy that holds the configuration file.
    says : frozenset of str
        Parameters that a patch can express.
    suffix : str
        File name suffix of a patch.
    patch : callable
        (before, after, caveats) -> text of the patch.
    nearest : callable
        Setting nearest to a policy that the scheduler does not have, see `Nearest`.
    load : callable
        (runs before, runs after) -> further comments.
    """

    file: str
    says: frozenset[str]
    suffix: str
    patch: Callable[[Spec, Spec, Sequence[str]], str]
    nearest: Nearest = _no_nearest
    load: Callable[[Sequence[ExportRun], Sequence[ExportRun]], list[str]] = _no_notes


KUEUE_SETTINGS: Final[Mapping[str, str]] = {
    "fifo": "queueingStrategy: StrictFIFO in each ClusterQueue",
}
"""Policy -> nearest setting of Kueue."""


def _nearest_kueue_setting(after: Spec, before: Spec) -> tuple[str, Spec | None]:
    """Return the sentence on the Kueue setting nearest to a policy, if any, and None."""
    if after.name not in KUEUE_SETTINGS:
        return _no_nearest(after, before)
    nearest = (
        f"Kueue cannot run {catalog.allocator(after).title}. The nearest setting is"
        f" {KUEUE_SETTINGS[after.name]}: simulate a copy of the file with it as the second policy,"
        " then export that."
    )
    return nearest, None


def _kubernetes_target(parameter: str, nearest: Nearest = _no_nearest) -> Target:
    """Return the target of a scheduler with Kubernetes objects as text in one parameter."""

    def patch(before: Spec, after: Spec, caveats: Sequence[str]) -> str:
        """Return the patch between the objects of two policies."""
        old, new = (str(dict(spec.params)[parameter]) for spec in (before, after))
        return kubernetes.patch(old, new, caveats)

    return Target(parameter, frozenset({parameter}), "yaml", patch, nearest)


TARGETS: Final[Mapping[str, Target]] = {
    "slurm": Target("conf", slurm.SAYS, "conf", slurm.patch, slurm.nearest, slurm.load),
    "kueue": _kubernetes_target("config", _nearest_kueue_setting),
    "kai": _kubernetes_target("queues"),
}
"""Name of a policy -> export target."""


def patch(before: Spec, after: Spec, caveats: Sequence[str] = ()) -> str:
    """Check that two policies can be exported; return the patch from the first to the second.

    Parameters
    ----------
    before, after : Spec
        One policy of `TARGETS`, both with the text of their file.
    caveats : sequence of str
        Comments for the top of the patch.

    Raises
    ------
    ParameterError
        If a patch cannot express the difference; the message says what to do instead.
    """
    target = TARGETS.get(before.name)
    if target is None:
        raise ParameterError(
            f"{before.name} is not a scheduler to export to. Choose one of {', '.join(TARGETS)}."
        )
    if after.name != before.name:
        raise ParameterError(nearest(before, after)[0])
    if not all(map(has_file, (before, after))):
        raise ParameterError(
            f"Give {before.name}:{target.file}=FILE twice: first the current configuration, then"
            " the new one."
        )
    others = [
        {key: value for key, value in spec.params if key not in target.says}
        for spec in (before, after)
    ]
    if others[0] != others[1]:
        differing = sorted({key for key, _ in others[0].items() ^ others[1].items()})
        raise ParameterError(
            f"The two policies differ in {', '.join(differing)}, which a patch cannot"
            " express. Set them equal."
        )
    for spec in (before, after):
        make(spec)  # raises if the file cannot be read
    return target.patch(before, after, caveats)


def nearest(before: Spec, after: Spec) -> tuple[str, Spec | None]:
    """Return a sentence on the setting nearest to a policy, and that setting or None.

    `before` is the scheduler in force, one of `TARGETS`; `after` is the policy.
    """
    return TARGETS[before.name].nearest(after, before)


def has_file(spec: Spec) -> bool:
    """Return True if a policy is an export target with the configuration of a site."""
    target = TARGETS.get(spec.name)
    return target is not None and bool(dict(spec.params).get(target.file))


def in_force(study: Study) -> int | None:
    """Return the index of the policy that a patch starts from; None = there is none.

    The baseline if it has the configuration of a site, else the first policy that has one.
    """
    order = sorted(range(len(study.allocators)), key=lambda at: at != study.baseline)
    return next((at for at in order if has_file(study.allocators[at])), None)


def patch_of_stored_runs(runs: StudyResults, old: int, new: int, trace: Trace, store: Store) -> str:
    """Return the patch between two policies of finished runs, with their figures as comments.

    Parameters
    ----------
    runs : StudyResults
        The runs.
    old, new : int
        Indices of the policy in force and of its replacement.
    trace : Trace
        The jobs.
    store : Store
        Store that holds the result of a backtest.

    Raises
    ------
    TrainyardError
        As `patch`; or if the trace was deleted.
    """
    before, after = (
        [ExportRun.from_entry(entry) for entry in runs.entries[place]] for place in (old, new)
    )
    return patch_of_simulated_runs(
        trace, before, after, backtest_verdict.policy_verdict(runs.study, old, store)
    )


def patch_of_simulated_runs(
    trace: Trace, before: Sequence[ExportRun], after: Sequence[ExportRun], backtest: Past | None
) -> str:
    """Return the patch between two simulated configurations, with figures as comments.

    Parameters
    ----------
    trace, before, after, backtest
        See `trainyard.export.caveats.caveats`.

    Raises
    ------
    ParameterError
        As `patch`.
    """
    old, new = (runs[0].scenario.allocator for runs in (before, after))
    target = TARGETS.get(old.name)
    more = target.load(before, after) if target is not None else []
    return patch(old, new, [*caveats(trace, before, after, backtest), *more])
