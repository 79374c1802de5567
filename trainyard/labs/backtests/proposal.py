"""Proposals: findings from a recording that can be applied to policy and machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from allocators import hard_quotas
from sim.cluster import Change
from trainyard.study.check import with_values
from trainyard.study.scenario import Scenario

HIDDEN, CAPACITY, NODES, MAINTENANCE, TIME_LIMITS = (
    "hidden-load",
    "capacity",
    "drained-nodes",
    "maintenance",
    "time-limits",
)
LIMIT: Final = "default_limit_h"
"""Policy parameter: time limit of jobs without one, in hours."""
MAX_PROPOSALS: Final = 8
"""Maximum number of proposals that are simulated."""
SHARE: Final = 0.05
"""Smallest share of time that a finding must cover."""
NEAR: Final = 0.95
"""Share of the described capacity above which an estimate equals it."""
MAX_NAMED: Final = 4
MIN_CASES: Final = 30
"""Smallest number of jobs or gaps that supports a proposal."""


@dataclass(frozen=True)
class Proposal:
    """A possible gap in the description, with the changes that fill it.

    Parameters
    ----------
    id : str
        Id, as in `trainyard.study.check.Check`.
    what, evidence : str
        The finding and its evidence, as sentences.
    changes : tuple of Change
        Node changes to apply.
    values : mapping
        Policy parameters to apply.
    quotas, tenant, resource : str
        Hard quotas to apply around the policy, as for `allocators.hard_quotas`; "" = none.
    """

    id: str
    what: str
    evidence: str
    changes: tuple[Change, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    quotas: str = ""
    tenant: str = ""
    resource: str = "gpus"

    @property
    def applicable(self) -> bool:
        """Whether the proposal can be simulated."""
        return bool(self.changes or self.values or self.quotas)

    def apply_to(self, scenario: Scenario) -> Scenario:
        """Return a scenario with the node changes, policy parameters and quotas of the proposal."""
        cluster = scenario.cluster
        allocator = with_values(scenario.allocator, self.values)
        if self.quotas:
            allocator = hard_quotas(allocator, self.quotas, self.tenant, self.resource)
        return replace(
            scenario,
            cluster=replace(cluster, changes=(*cluster.changes, *self.changes)),
            allocator=allocator,
        )


def halve_proposal(one: Proposal) -> Proposal:
    """Return a proposal that takes away half of the nodes, with "-half" added to its id."""
    changes = tuple(
        replace(change, nodes=change.nodes[: max(len(change.nodes) // 2, 1)])
        for change in one.changes
    )
    return replace(one, id=f"{one.id}-half", changes=changes)
