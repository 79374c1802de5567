"""A finding of the record that can be applied to the description of policy and machines."""

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
"""Parameter of policies that plan with time limits: that of jobs without one, hours."""
MOST_PROPOSALS: Final = 8
"""That can be simulated."""
SHARE: Final = 0.05
"""Share of the time that a finding must hold for, to be one."""
NEAR: Final = 0.95
"""An estimate of capacity so near to the described one is that."""
MOST_NAMED: Final = 4
FEWEST: Final = 30
"""Jobs or gaps, from which on something is said of them."""


@dataclass(frozen=True)
class Proposal:
    """Something that the description may lack.

    Parameters
    ----------
    id : str
        What a `trainyard.study.check.Check` calls it.
    what, evidence : str
        The finding, and what it rests on, as sentences.
    changes : tuple of Change
        Nodes that are absent if it is applied.
    values : mapping
        Parameters of the policy if it is applied.
    quotas, tenant, resource : str
        Hard quotas around the policy if it is applied, as
        `allocators.hard_quotas` takes them; "" = none.
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
        """Whether it can be simulated."""
        return bool(self.changes or self.values or self.quotas)

    def applied(self, scenario: Scenario) -> Scenario:
        """Return a scenario with it."""
        cluster = scenario.cluster
        allocator = with_values(scenario.allocator, self.values)
        if self.quotas:
            allocator = hard_quotas(allocator, self.quotas, self.tenant, self.resource)
        return replace(
            scenario,
            cluster=replace(cluster, changes=(*cluster.changes, *self.changes)),
            allocator=allocator,
        )


def half(one: Proposal) -> Proposal:
    """Return a proposal with half of its absent nodes."""
    changes = tuple(
        replace(change, nodes=change.nodes[: max(len(change.nodes) // 2, 1)])
        for change in one.changes
    )
    return replace(one, id=f"{one.id}-half", changes=changes)
