"""What if from here on: at an instant of a run another policy takes over, nodes come or go; the
scenario of the run that parts from the first one there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any, Final

from allocators import REGISTRY
from allocators.queue.wrappers import Switch
from sim.cluster import Change, Cluster, NodeGroup
from sim.errors import ParameterError
from sim.params import Spec
from trainyard.study import catalog
from trainyard.study.document import Document, finite, number, settings, whole
from trainyard.study.scenario import Scenario, as_spec
from trainyard.study.study import Study

KIND: Final = "from-here"
"""Of a `FromHere` that is kept."""
_SWITCH: Final = next(name for name, made in REGISTRY.items() if made is Switch)


@dataclass(frozen=True)
class BranchPoint(Document):
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
            raise ParameterError(
                f"The instant {self.at_s:g} s is not after the first submission. Choose a later"
                " one."
            )
        if not self.lost and self.until_s != inf:
            object.__setattr__(self, "until_s", inf)
        if not self.until_s > self.at_s:
            raise ParameterError(
                "What is lost would be back before it is gone. Choose a later instant for its"
                " return."
            )
        if any(count < 1 for _, count in self.added):
            raise ParameterError(
                "The number of nodes to add is below 1. Leave the row out, or add at least one."
            )
        if self.policy is None and not self.added and not self.lost:
            raise ParameterError(
                "Nothing changes. Choose another policy, nodes to add, or racks to lose."
            )

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
    def from_json(cls, data: Mapping[str, Any]) -> BranchPoint:
        """Read what `to_json` wrote.

        Raises
        ------
        ParameterError
            If a key is unknown, or a value cannot be used.
        """
        known = settings("change", data, cls)
        try:
            added = tuple(
                (whole("row", row), whole("nodes", count)) for row, count in known.get("added", ())
            )
            lost = tuple(str(name) for name in known.get("lost", ()))
        except (TypeError, ValueError) as error:
            raise ParameterError(
                "The list of nodes to add or to lose is damaged. Choose them again."
            ) from error
        policy, until_s = known.get("policy"), known.get("until_s")
        return cls(
            number("at_s", known.get("at_s")),
            None if policy is None else _policy(policy),
            added,
            lost,
            inf if until_s is None else number("until_s", until_s),
        )


def _policy(value: Any) -> Spec:
    spec = as_spec(value)
    return Spec.of(spec.name, **catalog.renamed(spec.name, spec.values))


@dataclass(frozen=True)
class Branch:
    """Two runs of the same jobs that part at an instant.

    Parameters
    ----------
    turn : BranchPoint
        Where, and how.
    was, here : Scenario
        As it was, and from here on.
    """

    turn: BranchPoint
    was: Scenario
    here: Scenario

    @property
    def study(self) -> Study | None:
        """Both as a study; None where they differ in their machines, which a study has only
        once.
        """
        return (
            Study(self.was, (self.was.allocator, self.here.allocator))
            if self.was.cluster == self.here.cluster
            else None
        )


@dataclass(frozen=True)
class FromHere(Document):
    """A run of a comparison, and what changes at an instant of it: all that is needed to ask the
    same again.

    Parameters
    ----------
    study : Study
        The comparison.
    policy : int
        Place of the policy whose run it is.
    turn : BranchPoint
        What changes, and when.

    Raises
    ------
    ParameterError
        If the comparison has no such policy, or no such row, rack or node.
    ClusterError
        If the cluster becomes too large.
    """

    study: Study
    policy: int
    turn: BranchPoint

    def __post_init__(self) -> None:
        """Check."""
        if not 0 <= self.policy < len(self.study.allocators):
            raise ParameterError(
                f"The comparison has no policy {self.policy + 1}. Choose one of its"
                f" {len(self.study.allocators)}."
            )
        _ = self.branch

    @property
    def branch(self) -> Branch:
        """The two runs."""
        return branch(self.study, self.policy, self.turn)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "kind": KIND,
            "study": self.study.to_json(),
            "policy": self.policy,
            "turn": self.turn.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FromHere:
        """Read what `to_json` wrote.

        Raises
        ------
        TrainyardError
            If a key is missing or unknown, or a value cannot be used.
        """
        known = settings("what-if", data, cls)
        if not isinstance(known.get("study"), Mapping):
            raise ParameterError("A what-if needs 'study' (what Save wrote).")
        turn = BranchPoint.from_json(known.get("turn") or {})
        study = Study.from_json(known["study"], (turn.policy,) if turn.policy else ())
        return cls(study, whole("policy", known.get("policy", 0)), turn)


def branch(study: Study, at: int, turn: BranchPoint) -> Branch:
    """Return the run of one policy of a study, first seed, and the same run that changes at an
    instant.

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
        policy = catalog.canonical(
            "allocator", Spec.of(_SWITCH, at_s=turn.at_s, first=was.allocator, then=turn.policy)
        )
    return Branch(turn, was, replace(was, allocator=policy, cluster=turned(was.cluster, turn)))


def turned(cluster: Cluster, turn: BranchPoint) -> Cluster:
    """Return a cluster on which nodes come or go at an instant; nodes that come are numbered behind
    all others, and nobody knows of them before.

    Raises
    ------
    ParameterError
        If a row, a rack or a node is not there.
    """
    groups, changes, nodes = list(cluster.groups), list(cluster.changes), len(cluster.nodes)
    for row, count in turn.added:
        if not 0 <= row < len(cluster.groups):
            raise ParameterError(
                f"The cluster has no row {row + 1}. Choose one of its {len(cluster.groups)} rows."
            )
        new = tuple(range(nodes, nodes + count))
        groups.append(replace(cluster.groups[row], count=count, name=_new_name(groups, row)))
        changes += [
            Change(0.0, new, present=False),
            Change(turn.at_s, new, present=True, foreseen=False),
        ]
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


# -- machines
# --------------------------------------------------------------------------------------------------


def _prefix(group: NodeGroup, at: int) -> str:
    return group.name or f"{group.gpu_type or 'cpu'}-{at + 1}"


def _new_name(groups: list[NodeGroup], row: int) -> str:
    taken = {_prefix(group, at) for at, group in enumerate(groups)}
    name = f"{_prefix(groups[row], row)}-new"
    return next(
        one
        for turn in range(1, len(groups) + 2)
        if (one := name if turn == 1 else f"{name}{turn}") not in taken
    )


def _named(cluster: Cluster, names: tuple[str, ...]) -> tuple[int, ...]:
    known = {name for node in cluster.nodes for name in (node.rack, node.name)}
    for name in names:
        if name not in known:
            raise ParameterError(
                f"The cluster has no rack and no node '{name}'. Choose one of its racks or nodes."
            )
    return tuple(
        at for at, node in enumerate(cluster.nodes) if node.rack in names or node.name in names
    )


def _without(changes: list[Change], lost: tuple[int, ...], turn: BranchPoint) -> list[Change]:
    """Take nodes away for a while; what was planned for them meanwhile does not happen, and
    afterwards they are as they would have been.
    """
    gone, kept = set(lost), []
    for change in changes:
        others = tuple(node for node in change.nodes if node not in gone)
        if not turn.at_s <= change.at_s <= turn.until_s:
            kept.append(change)
        elif others:
            kept.append(replace(change, nodes=others))
    kept.append(Change(turn.at_s, lost, present=False))
    back = tuple(node for node in lost if _is_there(changes, node, turn.until_s))
    return (
        [*kept, Change(turn.until_s, back, present=True)]
        if back and isfinite(turn.until_s)
        else kept
    )


def _is_there(changes: list[Change], node: int, at_s: float) -> bool:
    mine = [
        change
        for change in sorted(changes, key=lambda change: change.at_s)
        if node in change.nodes and change.at_s <= at_s
    ]
    return mine[-1].present if mine else True
