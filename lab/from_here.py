"""What if from here on: at an instant of a run another policy takes over, nodes come or go; run again from the beginning, and compared with as it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any, Final

import numpy as np
import pandas as pd

from allocators import REGISTRY
from allocators.wrappers import Switch
from lab import catalog, compare
from lab.compare import Mask, Outcome
from lab.compared import METRICS
from lab.document import finite, number, pack_document, settings, unpack_document, whole
from lab.outcomes import measured_jobs
from lab.readable import change as relative
from lab.scenario import Scenario, as_spec
from lab.store import Entry
from lab.study import Study
from lab.words import Clock, plural
from sim.cluster import Change, Cluster, NodeGroup
from sim.errors import ParameterError
from sim.metrics import first_difference_s
from sim.params import Spec

WAS: Final = "As it was"
HERE: Final = "From here on"
TITLES: Final = (WAS, HERE)
_SWITCH: Final = next(name for name, made in REGISTRY.items() if made is Switch)
_KINDS: Final = ("queue", "utilisation", "capacity")
_TOTALS: Final = ("completion_rate", "makespan_s", "utilisation", "preemptions", "evictions", "cost_held_per_job_usd", "cost_cluster_usd")
_TOLD: Final = 0.0005
"""Smaller relative differences are told as none."""


@dataclass(frozen=True)
class Turn:
    """What changes at an instant of a run.

    Parameters
    ----------
    at_s : float, seconds
        The instant, since the first submission.
    policy : Spec or None
        Who decides from then on; None = whoever did before.
    added : tuple of (int, int)
        Row of the cluster, counted from 0, and how many more of its nodes come.
    lost : tuple of str
        Names of racks or of nodes that go.
    until_s : float, seconds
        When those are back; inf = never.

    Raises
    ------
    ParameterError
        If nothing changes, or an instant or a count makes no sense.
    """

    at_s: float
    policy: Spec | None = None
    added: tuple[tuple[int, int], ...] = ()
    lost: tuple[str, ...] = ()
    until_s: float = inf

    def __post_init__(self) -> None:
        """Check."""
        if not 0 < self.at_s < inf:
            raise ParameterError(f"The instant {self.at_s:g} s is not after the first submission. Choose a later one.")
        if not self.lost and self.until_s != inf:
            object.__setattr__(self, "until_s", inf)
        if not self.until_s > self.at_s:
            raise ParameterError("What is lost would be back before it is gone. Choose a later instant for its return.")
        if any(count < 1 for _, count in self.added):
            raise ParameterError("The number of nodes to add is below 1. Leave the row out, or add at least one.")
        if self.policy is None and not self.added and not self.lost:
            raise ParameterError("Nothing changes. Choose another policy, nodes to add, or racks to lose.")

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "at_s": self.at_s,
            "policy": None if self.policy is None else self.policy.to_json(),
            "added": [list(row) for row in self.added],
            "lost": list(self.lost),
            "until_s": finite(self.until_s),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Turn:
        """Read what `to_json` wrote.

        Raises
        ------
        ParameterError
            If a key is unknown, or a value cannot be used.
        """
        known = settings("change", data, cls)
        try:
            added = tuple((whole("row", row), whole("nodes", count)) for row, count in known.get("added", ()))
            lost = tuple(str(name) for name in known.get("lost", ()))
        except (TypeError, ValueError) as error:
            raise ParameterError("The list of nodes to add or to lose is damaged. Choose them again.") from error
        policy, until_s = known.get("policy"), known.get("until_s")
        return cls(
            number("at_s", known.get("at_s")),
            None if policy is None else as_spec(policy),
            added,
            lost,
            inf if until_s is None else number("until_s", until_s),
        )

    def pack(self) -> str:
        """Return a short form for an address."""
        return pack_document(self.to_json())

    @classmethod
    def unpack(cls, text: str) -> Turn:
        """Read what `pack` wrote.

        Raises
        ------
        ParameterError
            If the text is damaged.
        """
        return cls.from_json(unpack_document(text))


@dataclass(frozen=True)
class Branch:
    """Two runs of the same jobs that part at an instant.

    Parameters
    ----------
    turn : Turn
        Where, and how.
    was, here : Scenario
        As it was, and from here on.
    """

    turn: Turn
    was: Scenario
    here: Scenario

    @property
    def study(self) -> Study | None:
        """Both as a study; None where they differ in their machines, which a study has only once."""
        return Study(self.was, (self.was.allocator, self.here.allocator)) if self.was.cluster == self.here.cluster else None


@dataclass(frozen=True, eq=False)
class After:
    """How two runs differ after the instant at which they part.

    Parameters
    ----------
    differs_s : float, seconds
        Where they differ first before that instant, which they never should; NaN = nowhere.
    jobs : DataFrame
        One row per group of jobs that were not finished then: group, jobs, both (completed in both runs), and of those the mean and the 95th percentile of JCT
        and wait: jct_mean_s_was, jct_mean_s, jct_mean_s_change, and so on for jct_p95_s, wait_mean_s, wait_p95_s.
    totals : DataFrame
        Of the whole runs: metric, title, unit, was, here, change.
    only_was, only_here : int
        Jobs completed in one of the two only.
    sentence : str
        The finding.
    """

    differs_s: float
    jobs: pd.DataFrame
    totals: pd.DataFrame
    only_was: int
    only_here: int
    sentence: str


def branch(study: Study, at: int, turn: Turn) -> Branch:
    """Return the run of one policy of a study, first seed, and the same run that changes at an instant.

    Raises
    ------
    ParameterError
        If a row, a rack or a node is not there, or the policies do not go together.
    ClusterError
        If the cluster becomes too large.
    """
    was = study.repeated(at)[0]
    policy = was.allocator
    if turn.policy is not None:
        policy = catalog.canonical("allocator", Spec.of(_SWITCH, at_s=turn.at_s, first=was.allocator, then=turn.policy))
    return Branch(turn, was, replace(was, allocator=policy, cluster=turned(was.cluster, turn)))


def turned(cluster: Cluster, turn: Turn) -> Cluster:
    """Return a cluster on which nodes come or go at an instant; nodes that come are numbered behind all others, and nobody knows of them before.

    Raises
    ------
    ParameterError
        If a row, a rack or a node is not there.
    """
    groups, changes, nodes = list(cluster.groups), list(cluster.changes), len(cluster.nodes)
    for row, count in turn.added:
        if not 0 <= row < len(cluster.groups):
            raise ParameterError(f"The cluster has no row {row + 1}. Choose one of its {len(cluster.groups)} rows.")
        new = tuple(range(nodes, nodes + count))
        groups.append(replace(cluster.groups[row], count=count, name=_new_name(groups, row)))
        changes += [Change(0.0, new, present=False), Change(turn.at_s, new, present=True, foreseen=False)]
        nodes += count
    if lost := _named(cluster, turn.lost):
        changes = _without(changes, lost, turn)
    return replace(cluster, groups=tuple(groups), changes=tuple(changes))


def losable(cluster: Cluster) -> dict[str, int]:
    """Return what of a cluster can be lost: name of a rack or a node -> nodes; racks first."""
    racks: dict[str, int] = {}
    for node in cluster.nodes:
        racks[node.rack] = racks.get(node.rack, 0) + 1
    return racks | {node.name: 1 for node in cluster.nodes}


def rows_of(cluster: Cluster) -> tuple[str, ...]:
    """Return what each row of a cluster is called: the beginning of its nodes' names."""
    return tuple(_prefix(group, at) for at, group in enumerate(cluster.groups))


def told(branch: Branch, clock: Clock) -> str:
    """Return what changes, as a part of a sentence: "with SRTF, 2 more nodes (v100-1) and without rack v100-1/r2 until day 4 02:00"."""
    turn, cluster = branch.turn, branch.was.cluster
    named = rows_of(cluster)
    with_ = [] if turn.policy is None else [catalog.allocator(turn.policy).title]
    with_ += [f"{count:,} more {'node' if count == 1 else 'nodes'} like {named[row]}" for row, count in turn.added]
    parts = [f"with {' and '.join(with_)}"] if with_ else []
    if turn.lost:
        back = f" until {clock.after(turn.until_s, turn.at_s)}" if isfinite(turn.until_s) else ""
        parts.append(f"without {', '.join(turn.lost)}{back}")
    return " and ".join(parts)


def after(branch: Branch, was: Entry, here: Entry, clock: Clock) -> After:
    """Compare two stored runs of a branch, job by job.

    Raises
    ------
    StoreError
        If one of them was removed meanwhile.
    """
    results = was.result(), here.result()
    masks = _groups(branch, results[0].jobs, results[1].jobs)
    rows = [_row(name, mask, _outcomes(mask, was, here, results[0].jobs, results[1].jobs)) for name, mask in masks.items()]
    table = pd.DataFrame(rows)
    pair = compare.paired(*_outcomes(next(iter(masks.values())), was, here, results[0].jobs, results[1].jobs))
    differs_s = first_difference_s(*results, branch.turn.at_s)
    sentence = _sentence(branch, rows[0], differs_s, clock)
    return After(differs_s, table, _totals(was, here), pair.only_base, pair.only_other, sentence)


def frames(was: Entry, here: Entry) -> dict[str, dict[str, pd.DataFrame]]:
    """Return the stored series of both runs for a figure: kind -> title -> reduced series; the capacity is that of the changed run.

    Raises
    ------
    StoreError
        If one of them was removed meanwhile.
    """
    both = dict(zip(TITLES, (was, here), strict=True))
    made = {kind: {title: entry.chart(kind) for title, entry in both.items()} for kind in _KINDS}
    return made | {"capacity": {HERE: made["capacity"][HERE]}}


# -- machines ------------------------------------------------------------------------------------------------------------------------------------------------


def _prefix(group: NodeGroup, at: int) -> str:
    return group.name or f"{group.gpu_type or 'cpu'}-{at + 1}"


def _new_name(groups: list[NodeGroup], row: int) -> str:
    taken = {_prefix(group, at) for at, group in enumerate(groups)}
    name = f"{_prefix(groups[row], row)}-new"
    return next(one for turn in range(1, len(groups) + 2) if (one := name if turn == 1 else f"{name}{turn}") not in taken)


def _named(cluster: Cluster, names: tuple[str, ...]) -> tuple[int, ...]:
    known = {name for node in cluster.nodes for name in (node.rack, node.name)}
    for name in names:
        if name not in known:
            raise ParameterError(f"The cluster has no rack and no node '{name}'. Choose one of its racks or nodes.")
    return tuple(at for at, node in enumerate(cluster.nodes) if node.rack in names or node.name in names)


def _without(changes: list[Change], lost: tuple[int, ...], turn: Turn) -> list[Change]:
    """Take nodes away for a while; what was planned for them meanwhile does not happen, and afterwards they are as they would have been."""
    gone, kept = set(lost), []
    for change in changes:
        others = tuple(node for node in change.nodes if node not in gone)
        if not turn.at_s <= change.at_s <= turn.until_s:
            kept.append(change)
        elif others:
            kept.append(replace(change, nodes=others))
    kept.append(Change(turn.at_s, lost, present=False))
    back = tuple(node for node in lost if _is_there(changes, node, turn.until_s))
    return [*kept, Change(turn.until_s, back, present=True)] if back and isfinite(turn.until_s) else kept


def _is_there(changes: list[Change], node: int, at_s: float) -> bool:
    mine = [change for change in sorted(changes, key=lambda change: change.at_s) if node in change.nodes and change.at_s <= at_s]
    return mine[-1].present if mine else True


# -- jobs ----------------------------------------------------------------------------------------------------------------------------------------------------


def _groups(branch: Branch, was: pd.DataFrame, here: pd.DataFrame) -> dict[str, Mask]:
    """Return which jobs were not finished at the instant: all, those that had come, and those that came later; turned away in both runs are none of them."""
    at_s = branch.turn.at_s
    away = np.asarray(was["outcome"].isin(["impossible", "refused"]) & here["outcome"].isin(["impossible", "refused"]))
    open_ = ~np.asarray(was["finish_s"] <= at_s) & ~away & measured_jobs(was, Study(branch.was, (branch.was.allocator,)))
    come = np.asarray(was["submit_s"] <= at_s)
    return {"Not finished then": open_, "of them submitted before": open_ & come, "submitted later": open_ & ~come}


def _outcomes(mask: Mask, was: Entry, here: Entry, *jobs: pd.DataFrame) -> tuple[Outcome, Outcome]:
    made = [Outcome(title, (entry.summary,), (one,), measured=(mask,)) for title, entry, one in zip(TITLES, (was, here), jobs, strict=True)]
    return made[0], made[1]


def _row(name: str, mask: Mask, outcomes: tuple[Outcome, Outcome]) -> dict[str, Any]:
    both = outcomes[0].done(0) & outcomes[1].done(0)
    row: dict[str, Any] = {"group": name, "jobs": int(mask.sum()), "both": int(both.sum())}
    for kind in ("jct", "wait"):
        values = [compare.of_jobs(outcome, 0, kind)[both] for outcome in outcomes]
        for statistic, percentile in (("mean", None), ("p95", 95)):
            was, here = (_statistic(one, percentile) for one in values)
            metric = f"{kind}_{statistic}_s"
            row |= {f"{metric}_was": was, metric: here, f"{metric}_change": compare.ratio([was], [here]).value}
    return row


def _statistic(values: compare.Floats, percentile: float | None) -> float:
    if not len(values):
        return float("nan")
    return float(values.mean() if percentile is None else np.percentile(values, percentile))


def _totals(was: Entry, here: Entry) -> pd.DataFrame:
    rows = []
    for metric in (metric for metric in METRICS if metric.name in _TOTALS):
        values = [float("nan") if (value := entry.summary.get(metric.name)) is None else float(value) for entry in (was, here)]
        if not all(np.isnan(values)) and any(value != metric.silent for value in values):
            change = compare.ratio(values[:1], values[1:]).value
            rows.append({"metric": metric.name, "title": metric.title, "unit": metric.unit, "was": values[0], "here": values[1], "change": change})
    return pd.DataFrame(rows, columns=["metric", "title", "unit", "was", "here", "change"])


def _sentence(branch: Branch, row: dict[str, Any], differs_s: float, clock: Clock) -> str:
    begin = f"From {clock.at(branch.turn.at_s)} on {told(branch, clock)}"
    before = "nothing before changed" if np.isnan(differs_s) else f"but the runs differ from {clock.at(differs_s)} on already"
    jobs = int(row["jobs"])
    if not jobs or not row["both"]:
        return f"{begin}: {'no job was left to finish' if not jobs else 'no job that was not finished is completed in both runs'}; {before}."
    were = f"the {plural(jobs, 'job')} that {'was' if jobs == 1 else 'were'} not finished"
    return f"{begin}: {were} {_effect(row, one=jobs == 1)}; {before}."


def _effect(row: dict[str, Any], *, one: bool) -> str:
    s = "s" if one else ""
    wait, jct = row["wait_mean_s_change"], row["jct_mean_s_change"]
    if isfinite(wait) and abs(wait) >= _TOLD:
        return f"wait{s} {_amount(wait)} {'less' if wait < 0 else 'longer'}"
    if isfinite(jct) and abs(jct) >= _TOLD:
        return f"take{s} {_amount(jct)} {'less time' if jct < 0 else 'longer'}"
    return f"take{s} as long as before"


def _amount(change: float) -> str:
    return relative(abs(change)).removeprefix("+")
