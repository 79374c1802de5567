"""Changes in the middle of a run: another policy, or nodes added or lost."""

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
from trainyard.study.document import Document, checked_fields, finite, number, whole_number
from trainyard.study.scenario import Scenario, as_spec
from trainyard.study.study import Study

KIND: Final = "from-here"
"""Kind of a stored `FromHere` document."""
_SWITCH: Final = next(name for name, policy_class in REGISTRY.items() if policy_class is Switch)


@dataclass(frozen=True)
class BranchPoint(Document):
    """Changes at one time of a run.

    Parameters
    ----------
    at_s : float, seconds
        Time of the changes, since the first submission.
    policy : Spec or None
        New policy; None = no change of policy.
    added : tuple of (int, int)
        (index of a node group, number of nodes to add).
    lost : tuple of str
        Names of lost racks or nodes.
    until_s : float, seconds
        Time at which they return; inf = never.

    Raises
    ------
    ParameterError
        If nothing changes, or a time or a count is invalid.
    """

    at_s: float
    policy: Spec | None = None
    added: tuple[tuple[int, int], ...] = ()
    lost: tuple[str, ...] = ()
    until_s: float = inf

    def __post_init__(self) -> None:
        """Validate the changes."""
        if not 0 < self.at_s < inf:
            raise ParameterError(
                f"The time {self.at_s:g} s is not after the first submission. Choose a later one."
            )
        if not self.lost and self.until_s != inf:
            object.__setattr__(self, "until_s", inf)
        if not self.until_s > self.at_s:
            raise ParameterError(
                "Removed nodes would return before their removal. Choose a later time for their"
                " return."
            )
        if any(count < 1 for _, count in self.added):
            raise ParameterError(
                "The number of nodes to add is below 1. Leave the row out, or add at least one."
            )
        if self.policy is None and not self.added and not self.lost:
            raise ParameterError(
                "Nothing changes. Choose another policy, nodes to add, or nodes to remove."
            )

    def to_json(self) -> dict[str, Any]:
        """Return the document as plain values."""
        return {
            "at_s": self.at_s,
            "policy": None if self.policy is None else self.policy.to_json(),
            "added": [list(row) for row in self.added],
            "lost": list(self.lost),
            "until_s": finite(self.until_s),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BranchPoint:
        """Return the changes from a document of `to_json`.

        Raises
        ------
        ParameterError
            If a key is unknown, or a value cannot be used.
        """
        fields = checked_fields("change", data, cls)
        try:
            added = tuple(
                (whole_number("row", row), whole_number("nodes", count))
                for row, count in fields.get("added", ())
            )
            lost = tuple(str(name) for name in fields.get("lost", ()))
        except (TypeError, ValueError) as error:
            raise ParameterError(
                "The list of nodes to add or lose is damaged. Choose the nodes again."
            ) from error
        policy, until_s = fields.get("policy"), fields.get("until_s")
        return cls(
            number("at_s", fields.get("at_s")),
            None if policy is None else _policy_from_json(policy),
            added,
            lost,
            inf if until_s is None else number("until_s", until_s),
        )


def _policy_from_json(value: Any) -> Spec:
    """Return a policy from its JSON, with parameters under their present names."""
    spec = as_spec(value)
    return Spec.of(spec.name, **catalog.current_params(spec.name, spec.values))


@dataclass(frozen=True)
class Branch:
    """Two runs of the same jobs that differ after a branch point.

    Parameters
    ----------
    turn : BranchPoint
        Time and changes.
    was, here : Scenario
        The original run, and the changed run.
    """

    turn: BranchPoint
    was: Scenario
    here: Scenario

    @property
    def study(self) -> Study | None:
        """Both runs as a study; None if their clusters differ, because a study has one cluster."""
        return (
            Study(self.was, (self.was.allocator, self.here.allocator))
            if self.was.cluster == self.here.cluster
            else None
        )


@dataclass(frozen=True)
class FromHere(Document):
    """A run of a comparison and its changes, as a document to save and repeat.

    Parameters
    ----------
    study : Study
        The comparison.
    policy : int
        Index of the policy of the run.
    turn : BranchPoint
        Changes and their time.

    Raises
    ------
    ParameterError
        If the comparison has no such policy, node group, rack or node.
    ClusterError
        If the cluster becomes too large.
    """

    study: Study
    policy: int
    turn: BranchPoint

    def __post_init__(self) -> None:
        """Validate the policy and the changes."""
        if not 0 <= self.policy < len(self.study.allocators):
            raise ParameterError(
                f"The comparison has no policy {self.policy + 1}. Choose one of its"
                f" {len(self.study.allocators)}."
            )
        _ = self.branch

    @property
    def branch(self) -> Branch:
        """The original and the changed run."""
        return branch(self.study, self.policy, self.turn)

    def to_json(self) -> dict[str, Any]:
        """Return the document as plain values."""
        return {
            "kind": KIND,
            "study": self.study.to_json(),
            "policy": self.policy,
            "turn": self.turn.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FromHere:
        """Return the run and its changes from a document of `to_json`.

        Raises
        ------
        TrainyardError
            If a key is missing or unknown, or a value cannot be used.
        """
        fields = checked_fields("what-if", data, cls)
        if not isinstance(fields.get("study"), Mapping):
            raise ParameterError("A what-if needs 'study' (what Save wrote).")
        turn = BranchPoint.from_json(fields.get("turn") or {})
        study = Study.from_json(fields["study"], (turn.policy,) if turn.policy else ())
        return cls(study, whole_number("policy", fields.get("policy", 0)), turn)


def branch(study: Study, policy_index: int, turn: BranchPoint) -> Branch:
    """Return the first run of one policy of a study, and that run with changes.

    Raises
    ------
    ParameterError
        If a node group, rack or node does not exist, or one policy cannot follow the other.
    ClusterError
        If the cluster becomes too large.
    """
    was = study.policy_scenarios(policy_index)[0]
    policy = was.allocator
    if turn.policy is not None:
        policy = catalog.canonical(
            "allocator", Spec.of(_SWITCH, at_s=turn.at_s, first=was.allocator, then=turn.policy)
        )
    return Branch(
        turn, was, replace(was, allocator=policy, cluster=change_cluster(was.cluster, turn))
    )


def change_cluster(cluster: Cluster, turn: BranchPoint) -> Cluster:
    """Return a cluster with new node groups and dated changes for a branch point.

    Added nodes are numbered after all others, and policies cannot foresee them.

    Raises
    ------
    ParameterError
        If a node group, rack or node does not exist.
    """
    groups, changes, nodes = list(cluster.groups), list(cluster.changes), len(cluster.nodes)
    for row, count in turn.added:
        if not 0 <= row < len(cluster.groups):
            raise ParameterError(
                f"The cluster has no row {row + 1}. Choose one of its {len(cluster.groups)} rows."
            )
        new = tuple(range(nodes, nodes + count))
        groups.append(
            replace(cluster.groups[row], count=count, name=_added_group_name(groups, row))
        )
        changes += [
            Change(0.0, new, present=False),
            Change(turn.at_s, new, present=True, foreseen=False),
        ]
        nodes += count
    if lost := _nodes_named(cluster, turn.lost):
        changes = _without_nodes(changes, lost, turn)
    return replace(cluster, groups=tuple(groups), changes=tuple(changes))


def nodes_by_place(cluster: Cluster) -> dict[str, int]:
    """Return name -> number of nodes for each rack, then for each node."""
    racks: dict[str, int] = {}
    for node in cluster.nodes:
        racks[node.rack] = racks.get(node.rack, 0) + 1
    return racks | {node.name: 1 for node in cluster.nodes}


def group_names(cluster: Cluster) -> tuple[str, ...]:
    """Return the name of each node group: the prefix of its nodes' names."""
    return tuple(_group_name(group, at) for at, group in enumerate(cluster.groups))


# -- machines
# --------------------------------------------------------------------------------------------------


def _group_name(group: NodeGroup, group_index: int) -> str:
    return group.name or f"{group.gpu_type or 'cpu'}-{group_index + 1}"


def _added_group_name(groups: list[NodeGroup], row: int) -> str:
    """Return an unused name for nodes added to a group: its name with "-new" and a number."""
    used_names = {_group_name(group, at) for at, group in enumerate(groups)}
    name = f"{_group_name(groups[row], row)}-new"
    return next(
        one
        for turn in range(1, len(groups) + 2)
        if (one := name if turn == 1 else f"{name}{turn}") not in used_names
    )


def _nodes_named(cluster: Cluster, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the indices of nodes with these names, or in racks with these names.

    Raises ParameterError if a name is neither a node nor a rack.
    """
    place_names = {name for node in cluster.nodes for name in (node.rack, node.name)}
    for name in names:
        if name not in place_names:
            raise ParameterError(
                f"The cluster has no rack and no node '{name}'. Choose one of its racks or nodes."
            )
    return tuple(
        at for at, node in enumerate(cluster.nodes) if node.rack in names or node.name in names
    )


def _without_nodes(changes: list[Change], lost: tuple[int, ...], turn: BranchPoint) -> list[Change]:
    """Return dated changes with nodes removed for a while.

    Planned changes of these nodes are dropped while they are lost; then the plan holds again: a
    node that it has removed by then does not return.
    """
    lost_nodes, kept = set(lost), []
    for change in changes:
        others = tuple(node for node in change.nodes if node not in lost_nodes)
        if not turn.at_s <= change.at_s <= turn.until_s:
            kept.append(change)
        elif others:
            kept.append(replace(change, nodes=others))
    kept.append(Change(turn.at_s, lost, present=False))
    back = tuple(node for node in lost if _is_present(changes, node, turn.until_s))
    return (
        [*kept, Change(turn.until_s, back, present=True)]
        if back and isfinite(turn.until_s)
        else kept
    )


def _is_present(changes: list[Change], node: int, at_s: float) -> bool:
    """Return True if a node is present at a time by its dated changes; True without any."""
    mine = [
        change
        for change in sorted(changes, key=lambda change: change.at_s)
        if node in change.nodes and change.at_s <= at_s
    ]
    return mine[-1].present if mine else True
