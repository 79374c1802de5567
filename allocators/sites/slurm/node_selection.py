"""Node selection of the Slurm controller: free resources per node, and placements of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, inf
from typing import Final, NamedTuple

from allocators.sites.slurm.state import Mask, Placement, SlurmJob, replicas_on
from sim.contract import Demand

Room = dict[int, Mask]
"""Mask of the nodes with room for exactly N tasks of a job, by N."""
Share = tuple[int, float, float]
"""GPUs, cores and GB."""
Free = tuple[Share, tuple[int, ...]]
"""Free GPUs, cores and GB of a node, and free counts of each of `FreeNodes.gres`."""
_LITTLE: Final = 1e-9
_LEAST_SURPLUS: Final = 1e-6
_MANY: Final = 1_000_000
"""Maximum number of tasks on a node that no resource limits."""


class SwitchNodes(NamedTuple):
    """The node masks of a switch and of its leaf switches."""

    nodes: Mask
    leaves: tuple[Mask, ...]


class _CapacityCache:
    """Number of tasks of one shape that each node can take, and the log position."""

    __slots__ = ("log_position", "room", "tasks")

    def __init__(self, tasks: list[int], log_position: int) -> None:
        self.tasks, self.log_position = tasks, log_position
        self.room: Room = {}
        for node, count in enumerate(tasks):
            if count:
                self.room[count] = self.room.get(count, 0) | 1 << node


class FreeNodes:
    """Free resources per node, and the selection of nodes for a job.

    Parameters
    ----------
    gpus, cpus, mem_gb : sequence
        Totals of each node.
    levels : sequence of sequence of SwitchNodes
        The switches of each level, from the leaves up; empty = none.
    weights : sequence of int
        Weight of each node: lower weights are used first; empty = equal weights.
    prefer : {"", "busy", "idle"}
        Order of nodes. "" = best fit for the remaining tasks, else the largest node; "busy" = least
        free first; "idle" = most free first.
    threads : int or sequence of int
        CPUs allocated as one unit (threads of a core or of a socket), for each node or all.
    gres : sequence of sequence of int
        Other generic resources: for each kind the count on each node.
    """

    def __init__(  # noqa: PLR0913 - resources, and selection rules
        self,
        gpus: Sequence[int],
        cpus: Sequence[float],
        mem_gb: Sequence[float],
        levels: Sequence[Sequence[SwitchNodes]] = (),
        weights: Sequence[int] = (),
        *,
        prefer: str = "",
        threads: int | Sequence[int] = 1,
        gres: Sequence[Sequence[int]] = (),
    ) -> None:
        self.prefer = prefer
        self._threads = [threads] * len(gpus) if isinstance(threads, int) else list(threads)
        self.gres = [list(one) for one in gres]
        self.all = list(gpus), list(cpus), list(mem_gb)
        self.gpus, self.cpus, self.mem_gb = list(gpus), list(cpus), list(mem_gb)
        self.up: Mask = (1 << len(self.gpus)) - 1
        self._levels = levels
        self._unions = [
            sum([1 << at for at, weight in enumerate(weights) if weight <= most])
            for most in sorted(set(weights))
        ] or [self.up]
        self._shape_ids: dict[object, int] = {}
        self._log: list[int] = []
        self._caches: dict[int, _CapacityCache] = {}

    def __len__(self) -> int:
        return len(self.gpus)

    # -- free resources
    # ----------------------------------------------------------------------------------------------

    def take(self, job: SlurmJob, held: Placement, sign: int = 1) -> None:
        """Allocate the resources of a job on its nodes; `sign` -1 frees them.

        Cached task counts of the nodes are renewed at the next use.
        """
        for node, tasks in held:
            gpus, cpus, mem_gb = self.share(job, node, tasks)
            self.gpus[node] -= sign * gpus
            self.cpus[node] -= sign * cpus
            self.mem_gb[node] -= sign * mem_gb
            for kind, count in job.gres:
                self.gres[kind][node] -= sign * count
            self._log.append(node)

    def take_cores(self, job: SlurmJob, held: Placement, sign: int = 1) -> None:
        """Allocate only the cores of a job; `sign` -1 frees them."""
        for node, tasks in held:
            self.cpus[node] -= sign * self.share(job, node, tasks)[1]
            self._log.append(node)

    def set_free(self, gpus: Sequence[int], cpus: Sequence[float], mem_gb: Sequence[float]) -> None:
        """Set the free resources of all nodes; mark changed nodes for a new count."""
        own: list[Sequence[float]] = [self.gpus, self.cpus, self.mem_gb]
        for amounts, others in zip(own, (gpus, cpus, mem_gb), strict=True):
            if amounts != others:
                both = zip(amounts, others, strict=True)
                self._log += [node for node, (one, other) in enumerate(both) if one != other]
        self.gpus, self.cpus, self.mem_gb = list(gpus), list(cpus), list(mem_gb)

    def share(self, job: SlurmJob, node: int, tasks: int) -> Share:
        """Return the (GPUs, cores, GB) that a number of a job's tasks takes on a node.

        Exclusive jobs take the whole node; cores are rounded up to whole units.
        """
        if job.whole:
            cpus, mem_gb = self.all[1][node], self.all[2][node]
            return (
                self.all[0][node],
                cpus if cpus < inf else tasks * job.cpus,
                mem_gb if mem_gb < inf else tasks * job.mem_gb + job.node_mem_gb,
            )
        cpus = tasks * job.cpus
        threads = self._threads[node]
        if threads > 1:
            cpus = min(ceil(cpus / threads) * threads, max(self.all[1][node], cpus))
        return tasks * job.gpus + job.node_gpus, cpus, tasks * job.mem_gb + job.node_mem_gb

    def copy(self) -> FreeNodes:
        """Return a copy for forecasts; its free resources can change independently."""
        copied: FreeNodes = object.__new__(FreeNodes)
        copied.__dict__ |= self.__dict__
        copied.gpus, copied.cpus, copied.mem_gb = self.gpus[:], self.cpus[:], self.mem_gb[:]
        copied.gres = [one[:] for one in self.gres]
        copied._log, copied._caches = [], {}
        return copied

    def free(self, node: int) -> Free:
        """Return the free (GPUs, cores, GB) of a node, and its free counts of other resources."""
        own = self.gpus[node], self.cpus[node], self.mem_gb[node]
        return own, tuple([one[node] for one in self.gres])

    def tasks_that_fit(self, job: SlurmJob, node: int) -> int:
        """Return the number of tasks of a job that a node can take now."""
        free = self.gpus[node], self.cpus[node], self.mem_gb[node]
        return self.tasks_that_fit_in(job, node, free, [one[node] for one in self.gres])

    def tasks_that_fit_in(self, job: SlurmJob, node: int, free: Share, gres: Sequence[int]) -> int:
        """Return the number of tasks that a node with the given free resources can take.

        0 if fewer than ``per_node`` fit, or if a whole node is needed and it is in use.
        """
        gpus, cpus, mem_gb = free
        if job.whole and not self._is_idle(node, free):
            return 0
        if job.gres and any(gres[kind] < count for kind, count in job.gres):
            return 0
        tasks = job.per_node or _MANY
        if job.gpus or job.node_gpus:
            gpus -= job.node_gpus
            tasks = min(tasks, gpus // job.gpus) if job.gpus else tasks if gpus >= 0 else 0
        if job.cpus and cpus < tasks * job.cpus:
            tasks = int((cpus + _LITTLE) // job.cpus)
        if job.mem_gb or job.node_mem_gb:
            mem_gb += _LITTLE - job.node_mem_gb
            if mem_gb < 0:
                return 0
            if job.mem_gb and mem_gb < tasks * job.mem_gb:
                tasks = int(mem_gb // job.mem_gb)
        return 0 if job.per_node and tasks < min(job.per_node, job.tasks) else max(tasks, 0)

    def _is_idle(self, node: int, free: Share) -> bool:
        """Return True if the free resources are all resources of a node."""
        gpus, cpus, mem_gb = self.all
        return (
            free[0] == gpus[node]
            and free[1] >= cpus[node] - _LITTLE
            and free[2] >= mem_gb[node] - _LITTLE
        )

    def shape_id(self, job: SlurmJob) -> int:
        """Return the number of a job's shape; jobs of one shape fit in the same places."""
        if job.shape_id < 0:
            job.shape_id = self._shape_ids.setdefault(job.shape, len(self._shape_ids))
        return job.shape_id

    def room(self, job: SlurmJob) -> Room:
        """Return the nodes by the number of tasks of a job that they can take (cached).

        Only nodes that changed since the last call are counted again.
        """
        shape_id = self.shape_id(job)
        cache = self._caches.get(shape_id)
        log = self._log
        if cache is None:
            cache = self._caches[shape_id] = _CapacityCache(self._count_tasks(job), len(log))
        elif cache.log_position < len(log):
            fresh = set(log[cache.log_position :])
            cache.log_position = len(log)
            cache.room = update_room(cache.tasks, cache.room, self.counts(job, fresh))
        return cache.room

    def tasks(self, job: SlurmJob) -> list[int]:
        """Return the number of tasks of a job that each node can take (cached)."""
        self.room(job)
        return self._caches[job.shape_id].tasks

    def counts(self, job: SlurmJob, nodes: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield (node, tasks that it can take) for the given nodes that a job may use."""
        may = job.may
        for node in nodes:
            if may >> node & 1:
                yield node, self.tasks_that_fit(job, node)

    def _count_tasks(self, job: SlurmJob) -> list[int]:
        """Count the tasks of a job that each node can take; 0 on nodes it may not use."""
        tasks = [0] * len(self)
        for node, count in self.counts(job, range(len(self))):
            tasks[node] = count
        return tasks

    # -- placement
    # ----------------------------------------------------------------------------------------------

    def has_enough(self, job: SlurmJob, available: Mask) -> bool:
        """Return True if nodes have enough resources in total for a job."""
        room = self.room(job)
        return any(is_enough(job, room, available & mask) for mask in job.allowed)

    def select(self, job: SlurmJob, available: Mask, room: Room | None = None) -> Placement:
        """Return the placement of a job on these nodes; () = it does not fit.

        Parameters
        ----------
        job : Job
            The job; only its shape matters.
        available : int
            Mask of nodes.
        room : Room or None
            Task counts to use instead of the current ones.
        """
        room = self.room(job) if room is None else room
        available &= self.up
        for allowed in job.allowed:
            nodes = available & allowed
            if not is_enough(job, room, nodes):
                continue
            own = _restrict_room(room, nodes)
            for union in self._unions:
                light = own
                if len(self._unions) > 1:
                    if not is_enough(job, own, union):
                        continue
                    light = _restrict_room(own, union)
                lay = _place_by_counts if job.counts else self._place_under_switch
                if placement := lay(job, light):
                    return placement
        return ()

    def _place_under_switch(self, job: SlurmJob, room: Room) -> Placement:
        """Place a job under the lowest-level switch that can hold it; () = none can.

        Of one level, the switch with the fewest usable nodes. Without switches, on runs of
        consecutive nodes.
        """
        if not self._levels:
            return _pack_tasks(
                job, room, _consecutive_runs(_usable_nodes(room)), self._node_ranks()
            )
        for level in self._levels:
            fewest, chosen, leaves = len(self) + 1, room, level[0].leaves
            for switch in level:
                if is_enough(job, room, switch.nodes):
                    own = _restrict_room(room, switch.nodes)
                    count = _usable_nodes(own).bit_count()
                    if count < fewest:
                        fewest, chosen, leaves = count, own, switch.leaves
            if fewest <= len(self):
                return _pack_tasks(job, chosen, leaves, self._node_ranks())
        return ()

    def _node_ranks(self) -> Sequence[float]:
        """Return a sort key per node from its free cores, lowest first; () = best fit.

        "busy" prefers nodes with few free cores, "idle" those with many; free GPUs if cores are
        unlimited.
        """
        if not self.prefer:
            return ()
        sign = 1.0 if self.prefer == "busy" else -1.0
        amounts = self.cpus if self.all[1][0] < inf else self.gpus
        return [sign * amount for amount in amounts]


class ReleaseForecast:
    """Free resources as running jobs end one by one at their time limits.

    Parameters
    ----------
    nodes : FreeNodes
        Resources that are free now.
    ends : sequence of (float, SlurmJob)
        End times of running jobs, in order.
    """

    def __init__(self, nodes: FreeNodes, ends: Sequence[tuple[float, SlurmJob]]) -> None:
        self._now, self._nodes = nodes, nodes.copy()
        self.ends = ends
        self.at_s = [end_s for end_s, _ in ends]
        self.on = [job.on for _, job in ends]
        self._steps: list[list[tuple[int, Share, tuple[int, ...]]]] = []
        self._free_after: dict[int, Free] = {}
        self._rooms: dict[int, tuple[list[int], list[Room]]] = {}

    def rooms(self, job: SlurmJob) -> list[Room]:
        """Return the room of a job after 0, 1, ... ends, as far as `extend` computed it."""
        shape_id = self._now.shape_id(job)
        cached = self._rooms.get(shape_id)
        if cached is None:
            now = self._now.room(job)
            cached = self._rooms[shape_id] = self._now.tasks(job)[:], [now]
        return cached[1]

    def extend(self, job: SlurmJob, ended: int) -> None:
        """Compute the rooms of a job up to a number of ended jobs; call `rooms` first."""
        tasks, rooms = self._rooms[job.shape_id]
        tasks_that_fit_in, may = self._now.tasks_that_fit_in, job.may
        for end_index in range(len(rooms) - 1, ended):
            counts = [
                (node, tasks_that_fit_in(job, node, free, gres))
                for node, free, gres in self.released_nodes(end_index)
                if may >> node & 1
            ]
            rooms.append(update_room(tasks, rooms[end_index], counts))

    def released_nodes(self, end_index: int) -> list[tuple[int, Share, tuple[int, ...]]]:
        """Return (node, free resources, gres) of the nodes of job `end_index` at its end.

        Computed in order of ends, and cached.
        """
        steps = self._steps
        while len(steps) <= end_index:
            steps.append(self._release_of(len(steps)))
        return steps[end_index]

    def select(self, job: SlurmJob, available: Mask, ended: int) -> Placement:
        """Return the placement of a job after a number of jobs ended; () = it does not fit."""
        if self._nodes.prefer:
            # The preference needs the free resources of that time.
            self._nodes.set_free(self._now.gpus, self._now.cpus, self._now.mem_gb)
            for _, other in self.ends[:ended]:
                self._nodes.take(other, other.held, -1)
        return self._nodes.select(job, available, self.rooms(job)[ended])

    def _release_of(self, end_index: int) -> list[tuple[int, Share, tuple[int, ...]]]:
        """Compute the free resources on the nodes of a job after its end.

        They accumulate: call it once per job, in order of the ends.
        """
        job, now = self.ends[end_index][1], self._now
        released = []
        for node, tasks in job.held:
            (gpus, cpus, mem_gb), gres = self._free_after.get(node) or now.free(node)
            more = now.share(job, node, tasks)
            own = dict(job.gres)
            after = (
                (gpus + more[0], cpus + more[1], mem_gb + more[2]),
                tuple(count + own.get(kind, 0) for kind, count in enumerate(gres)),
            )
            self._free_after[node] = after
            released.append((node, *after))
        return released


def update_room(tasks: list[int], room: Room, counts: Iterable[tuple[int, int]]) -> Room:
    """Return the room after nodes changed their task counts; `tasks` is updated."""
    updated: Room | None = None
    for node, count in counts:
        old_count = tasks[node]
        if old_count == count:
            continue
        updated = dict(room) if updated is None else updated
        bit = 1 << node
        if old_count:
            left = updated[old_count] & ~bit
            if left:
                updated[old_count] = left
            else:
                del updated[old_count]
        if count:
            updated[count] = updated.get(count, 0) | bit
        tasks[node] = count
    return room if updated is None else updated


def _restrict_room(room: Room, nodes: Mask) -> Room:
    """Return the room on a subset of nodes."""
    return {tasks: mask for tasks, all_of in room.items() if (mask := all_of & nodes)}


def _usable_nodes(room: Room) -> Mask:
    """Return the mask of the nodes that can take a task."""
    nodes = 0
    for mask in room.values():
        nodes |= mask
    return nodes


def is_enough(job: SlurmJob, room: Room, nodes: Mask) -> bool:
    """Return True if nodes have room for all tasks and for the node counts of a job.

    `room` gives the tasks that each node can take; placement rules are not checked.
    """
    count = size = 0
    for tasks, mask in room.items():
        node_count = (mask & nodes).bit_count()
        count += node_count
        size += tasks * node_count
    if count < job.needed_nodes or size < job.tasks:
        return False
    if not job.counts:
        return True
    usable_nodes = _usable_nodes(room) & nodes
    return all((usable_nodes & mask).bit_count() >= required for mask, required in job.counts)


def _consecutive_runs(nodes: Mask) -> list[Mask]:
    """Split a mask into masks of consecutive nodes, lowest nodes first."""
    runs: list[Mask] = []
    while nodes:
        beyond = nodes + (nodes & -nodes)
        runs.append(nodes & ~beyond)
        nodes &= beyond
    return runs


def _pick_node(group: Room, tasks_left: int, ranks: Sequence[float]) -> tuple[int, int]:
    """Return the node to fill next, and the number of tasks that it can take.

    The lowest rank; without ranks the least room that takes all tasks left, else the most room.
    """
    if ranks:
        ranked = []
        for tasks, mask in group.items():
            rest = mask
            while rest:
                node = (rest & -rest).bit_length() - 1
                rest &= rest - 1
                ranked.append((ranks[node], node, tasks))
        _, node, tasks = min(ranked)
        return node, tasks
    tasks = min([tasks for tasks in group if tasks >= tasks_left], default=0) or max(group)
    return (group[tasks] & -group[tasks]).bit_length() - 1, tasks


def _pack_tasks(
    job: SlurmJob, room: Room, parts: Sequence[Mask], ranks: Sequence[float]
) -> Placement:
    """Place tasks on the smallest part that holds all, else on the largest parts in turn.

    A part is a run of nodes or a leaf switch. () = the tasks do not fit.
    """
    left, nodes_left = job.tasks, job.needed_nodes
    if len(room) == 1:
        [(each, nodes)] = room.items()
        sizes = [each * (nodes & part).bit_count() for part in parts]
    else:
        nodes, pairs = _usable_nodes(room), list(room.items())
        sizes = [sum([n * (mask & part).bit_count() for n, mask in pairs]) for part in parts]
    left_parts = [part for part, size in zip(parts, sizes, strict=True) if size]
    sizes = [size for size in sizes if size]
    taken: dict[int, int] = {}
    while left and sizes:
        enough = [
            at
            for at, size in enumerate(sizes)
            if size >= left and (nodes & left_parts[at]).bit_count() >= nodes_left
        ]
        choose = {True: min, False: max}[bool(enough)]
        at = choose(enough or range(len(sizes)), key=sizes.__getitem__)
        sizes.pop(at)
        group = _restrict_room(room, left_parts.pop(at))
        while group and left:
            # Each further node that is asked for gets at least one task.
            max_tasks = max(left - max(nodes_left - 1, 0), 1)
            node, tasks = _pick_node(group, max_tasks, ranks)
            taken[node] = min(tasks, max_tasks)
            group[tasks] &= ~(1 << node)
            if not group[tasks]:
                del group[tasks]
            left -= taken[node]
            nodes_left -= 1
    return tuple(sorted(taken.items())) if not left and nodes_left <= 0 else ()


def _place_by_counts(job: SlurmJob, room: Room) -> Placement:
    """Place tasks on the node counts that a constraint requires, largest nodes first.

    () = they do not fit.

    Where feature masks overlap, a node counts for the first one (an assumption).
    """
    by_room = [
        (node, tasks)
        for tasks in sorted(room, reverse=True)
        for node in range(room[tasks].bit_length())
        if room[tasks] >> node & 1
    ]
    chosen: dict[int, int] = {}
    for mask, count in job.counts:
        own = [one for one in by_room if mask >> one[0] & 1 and one[0] not in chosen][:count]
        if len(own) < count:
            return ()
        chosen |= own
    rest = [one for one in by_room if one[0] not in chosen]
    while sum(chosen.values()) < job.tasks or len(chosen) < job.needed_nodes:
        if not rest:
            return ()
        node, tasks = rest.pop(0)
        chosen[node] = tasks
    if len(chosen) > job.tasks:
        return ()
    left, placement = job.tasks - len(chosen), []
    for node, tasks in sorted(chosen.items()):
        more = min(tasks - 1, left)
        left -= more
        placement.append((node, 1 + more))
    return tuple(placement)


class Surplus:
    """Resources that Slurm reserves beyond the simulator's, per node.

    Sources are exclusive nodes, default memory, whole cores, and the resources of suspended jobs.

    Parameters
    ----------
    nodes : FreeNodes
        Nodes of the controller.
    """

    def __init__(self, nodes: FreeNodes) -> None:
        self._nodes = nodes
        self._more: dict[int, Share] = {}

    def add(self, job: SlurmJob, demand: Demand, sign: int = 1) -> None:
        """Add what Slurm reserves for a running job beyond the simulator; `sign` -1 removes it.

        Jobs with servers are skipped.
        """
        if demand.servers is not None or (sign < 0 and not self._more):
            return
        held = dict(replicas_on(job.held, demand.replicas, evenly=job.node_gpus > 0))
        for place, tasks in job.held:
            gpus, cpus, mem_gb = self._nodes.share(job, place, tasks)
            count = held.get(place, 0)
            more = (
                gpus - count * demand.gpus,
                cpus - count * demand.cpus,
                mem_gb - count * demand.mem_gb,
            )
            if any(abs(one) > _LEAST_SURPLUS for one in more):
                self._add(place, more, sign)

    def add_suspended(self, job: SlurmJob, sign: int = 1) -> None:
        """Add all resources of a suspended job; the simulator counts none of them."""
        for place, tasks in job.held:
            self._add(place, self._nodes.share(job, place, tasks), sign)

    def subtract_from(self, gpus: list[int], cpus: list[float], mem_gb: list[float]) -> None:
        """Subtract the surplus from the free resources of each node, in place."""
        for place, more in self._more.items():
            gpus[place] -= int(more[0])
            cpus[place] -= more[1]
            mem_gb[place] -= more[2]

    def _add(self, place: int, more: Share, sign: int) -> None:
        """Change the surplus of a node by `sign` x resources."""
        gpus, cpus, mem_gb = self._more.get(place, (0, 0.0, 0.0))
        self._more[place] = (
            gpus + sign * int(more[0]),
            round(cpus + sign * more[1], 6),
            round(mem_gb + sign * more[2], 6),
        )
