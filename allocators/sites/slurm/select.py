"""What is free on which node, and on which nodes a job would go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, inf
from typing import Final, NamedTuple

from allocators.sites.slurm.state import Mask, Placement, SlurmJob, replicas_on
from sim.contract import Demand

Room = dict[int, Mask]
"""Tasks that a node can take -> the nodes that can take just so many."""
Share = tuple[int, float, float]
"""GPUs, cores and GB."""
Free = tuple[Share, tuple[int, ...]]
"""What is free on a node: GPUs, cores and GB, and of each of `FreeNodes.gres`."""
_LITTLE: Final = 1e-9
_LEAST_SURPLUS: Final = 1e-6
_MANY: Final = 1_000_000
"""Tasks on a node of which nothing limits them."""


class SwitchNodes(NamedTuple):
    """The nodes below a switch, and those of each leaf below it."""

    nodes: Mask
    leaves: tuple[Mask, ...]


class _Known:
    """How many tasks of a shape each node can take, and how far the log was followed."""

    __slots__ = ("room", "seen", "tasks")

    def __init__(self, tasks: list[int], seen: int) -> None:
        self.tasks, self.seen = tasks, seen
        self.room: Room = {}
        for node, count in enumerate(tasks):
            if count:
                self.room[count] = self.room.get(count, 0) | 1 << node


class FreeNodes:
    """What is free on each node.

    Parameters
    ----------
    gpus, cpus, mem_gb : sequence
        Of each node.
    levels : sequence of sequence of SwitchNodes
        The switches of each level, from the leaves up; empty = none.
    weights : sequence of int
        Of each node: lighter ones are used first; empty = all alike.
    prefer : {"", "busy", "idle"}
        "" = the node that holds the rest with the least room, else the largest; "busy" = those with
        the least room first; "idle" = those with the most.
    threads : int or sequence of int
        Cores come in so many at once: threads of a core, or cores of a socket, belong together; of
        each node, or of all.
    gres : sequence of sequence of int
        Other countable resources: of each kind the number on each node.
    """

    def __init__(  # noqa: PLR0913 - what a node has, and how nodes are chosen
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
        self._forms: dict[object, int] = {}
        self._log: list[int] = []
        self._known: dict[int, _Known] = {}

    def __len__(self) -> int:
        return len(self.gpus)

    # -- what is free
    # ----------------------------------------------------------------------------------------------

    def take(self, job: SlurmJob, held: Placement, sign: int = 1) -> None:
        """Book what a job takes on its nodes; `sign` -1 gives it back."""
        for node, tasks in held:
            gpus, cpus, mem_gb = self.share(job, node, tasks)
            self.gpus[node] -= sign * gpus
            self.cpus[node] -= sign * cpus
            self.mem_gb[node] -= sign * mem_gb
            for kind, count in job.gres:
                self.gres[kind][node] -= sign * count
            self._log.append(node)

    def take_cores(self, job: SlurmJob, held: Placement, sign: int = 1) -> None:
        """Book the cores of a job alone."""
        for node, tasks in held:
            self.cpus[node] -= sign * self.share(job, node, tasks)[1]
            self._log.append(node)

    def follow(self, gpus: Sequence[int], cpus: Sequence[float], mem_gb: Sequence[float]) -> None:
        """Take over what is free on each node."""
        own: list[Sequence[float]] = [self.gpus, self.cpus, self.mem_gb]
        for amounts, others in zip(own, (gpus, cpus, mem_gb), strict=True):
            if amounts != others:
                both = zip(amounts, others, strict=True)
                self._log += [node for node, (one, other) in enumerate(both) if one != other]
        self.gpus, self.cpus, self.mem_gb = list(gpus), list(cpus), list(mem_gb)

    def share(self, job: SlurmJob, node: int, tasks: int) -> Share:
        """Return the GPUs, cores and GB that a job takes on a node."""
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
        """Return the same nodes with what is free now, for looking ahead."""
        made: FreeNodes = object.__new__(FreeNodes)
        made.__dict__ |= self.__dict__
        made.gpus, made.cpus, made.mem_gb = self.gpus[:], self.cpus[:], self.mem_gb[:]
        made.gres = [one[:] for one in self.gres]
        made._log, made._known = [], {}
        return made

    def free(self, node: int) -> Free:
        """Return what is free on a node."""
        own = self.gpus[node], self.cpus[node], self.mem_gb[node]
        return own, tuple([one[node] for one in self.gres])

    def usable(self, job: SlurmJob, node: int) -> int:
        """Return how many tasks of a job a node can take."""
        free = self.gpus[node], self.cpus[node], self.mem_gb[node]
        return self.usable_of(job, node, free, [one[node] for one in self.gres])

    def usable_of(self, job: SlurmJob, node: int, free: Share, gres: Sequence[int]) -> int:
        """Return how many tasks of a job a node can take of which so much is free."""
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
        gpus, cpus, mem_gb = self.all
        return (
            free[0] == gpus[node]
            and free[1] >= cpus[node] - _LITTLE
            and free[2] >= mem_gb[node] - _LITTLE
        )

    def form(self, job: SlurmJob) -> int:
        """Return the number of a job's shape: jobs of one shape fit in the same places."""
        if job.form < 0:
            job.form = self._forms.setdefault(job.shape, len(self._forms))
        return job.form

    def room(self, job: SlurmJob) -> Room:
        """Return how many tasks of a job the nodes can take, kept for its shape."""
        form = self.form(job)
        known = self._known.get(form)
        log = self._log
        if known is None:
            known = self._known[form] = _Known(self._counted(job), len(log))
        elif known.seen < len(log):
            fresh = set(log[known.seen :])
            known.seen = len(log)
            known.room = moved(known.tasks, known.room, self.counts(job, fresh))
        return known.room

    def tasks(self, job: SlurmJob) -> list[int]:
        """Return the same node by node."""
        self.room(job)
        return self._known[job.form].tasks

    def counts(self, job: SlurmJob, nodes: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield nodes with the tasks that they can take."""
        may = job.may
        for node in nodes:
            if may >> node & 1:
                yield node, self.usable(job, node)

    def _counted(self, job: SlurmJob) -> list[int]:
        tasks = [0] * len(self)
        for node, count in self.counts(job, range(len(self))):
            tasks[node] = count
        return tasks

    # -- where a job goes
    # ----------------------------------------------------------------------------------------------

    def could(self, job: SlurmJob, available: Mask) -> bool:
        """Tell whether these nodes have enough in all for a job, wherever it would go."""
        room = self.room(job)
        return any(is_enough(job, room, available & mask) for mask in job.allowed)

    def select(self, job: SlurmJob, available: Mask, room: Room | None = None) -> Placement:
        """Return where a job goes on these nodes; () = it does not fit.

        Parameters
        ----------
        job : Job
            Of which the shape counts.
        available : int
            Mask of nodes.
        room : Room or None
            What is free, instead of now.
        """
        room = self.room(job) if room is None else room
        available &= self.up
        for allowed in job.allowed:
            nodes = available & allowed
            if not is_enough(job, room, nodes):
                continue
            own = _within(room, nodes)
            for union in self._unions:
                light = own
                if len(self._unions) > 1:
                    if not is_enough(job, own, union):
                        continue
                    light = _within(own, union)
                lay = _counted_out if job.counts else self._under_switches
                if found := lay(job, light):
                    return found
        return ()

    def _under_switches(self, job: SlurmJob, room: Room) -> Placement:
        if not self._levels:
            return _filled(job, room, _runs(_union(room)), self._ranks())
        for level in self._levels:
            fewest, chosen, leaves = len(self) + 1, room, level[0].leaves
            for switch in level:
                if is_enough(job, room, switch.nodes):
                    own = _within(room, switch.nodes)
                    count = _union(own).bit_count()
                    if count < fewest:
                        fewest, chosen, leaves = count, own, switch.leaves
            if fewest <= len(self):
                return _filled(job, chosen, leaves, self._ranks())
        return ()

    def _ranks(self) -> Sequence[float]:
        """Return by what nodes are taken one after the other; () = by best fit."""
        if not self.prefer:
            return ()
        sign = 1.0 if self.prefer == "busy" else -1.0
        amounts = self.cpus if self.all[1][0] < inf else self.gpus
        return [sign * amount for amount in amounts]


class Ahead:
    """What will be free as running jobs end at their limits, one after the other.

    Parameters
    ----------
    nodes : Nodes
        What is free now.
    ends : sequence of (float, Job)
        When jobs end, in order.
    """

    def __init__(self, nodes: FreeNodes, ends: Sequence[tuple[float, SlurmJob]]) -> None:
        self._now, self._nodes = nodes, nodes.copy()
        self.ends = ends
        self.at_s = [end_s for end_s, _ in ends]
        self.on = [job.on for _, job in ends]
        self._steps: list[list[tuple[int, Share, tuple[int, ...]]]] = []
        self._latest: dict[int, Free] = {}
        self._rooms: dict[int, tuple[list[int], list[Room]]] = {}

    def rooms(self, job: SlurmJob) -> list[Room]:
        """Return how many tasks of a job the nodes can take when 0, 1, ... jobs have ended, as far
        as `extend` went.
        """
        form = self._now.form(job)
        known = self._rooms.get(form)
        if known is None:
            now = self._now.room(job)
            known = self._rooms[form] = self._now.tasks(job)[:], [now]
        return known[1]

    def extend(self, job: SlurmJob, ended: int) -> None:
        """Let the rooms of a job reach until so many jobs have ended."""
        tasks, rooms = self._rooms[job.form]
        usable_of, may = self._now.usable_of, job.may
        for at in range(len(rooms) - 1, ended):
            counts = [
                (node, usable_of(job, node, free, gres))
                for node, free, gres in self.freed(at)
                if may >> node & 1
            ]
            rooms.append(moved(tasks, rooms[at], counts))

    def freed(self, at: int) -> list[tuple[int, Share, tuple[int, ...]]]:
        """Return the nodes of a job, the number of which is given, with what is free once it has
        ended.
        """
        steps = self._steps
        while len(steps) <= at:
            steps.append(self._step(len(steps)))
        return steps[at]

    def select(self, job: SlurmJob, available: Mask, ended: int) -> Placement:
        """Return where a job goes on these nodes when so many jobs have ended."""
        if self._nodes.prefer:
            # What is left on nodes decides, too.
            self._nodes.follow(self._now.gpus, self._now.cpus, self._now.mem_gb)
            for _, other in self.ends[:ended]:
                self._nodes.take(other, other.held, -1)
        return self._nodes.select(job, available, self.rooms(job)[ended])

    def _step(self, at: int) -> list[tuple[int, Share, tuple[int, ...]]]:
        job, now = self.ends[at][1], self._now
        made = []
        for node, tasks in job.held:
            (gpus, cpus, mem_gb), gres = self._latest.get(node) or now.free(node)
            more = now.share(job, node, tasks)
            own = dict(job.gres)
            after = (
                (gpus + more[0], cpus + more[1], mem_gb + more[2]),
                tuple(count + own.get(kind, 0) for kind, count in enumerate(gres)),
            )
            self._latest[node] = after
            made.append((node, *after))
        return made


def moved(tasks: list[int], room: Room, counts: Iterable[tuple[int, int]]) -> Room:
    """Return the room when nodes can take other numbers of tasks, which are noted in `tasks`."""
    made: Room | None = None
    for node, count in counts:
        was = tasks[node]
        if was == count:
            continue
        made = dict(room) if made is None else made
        bit = 1 << node
        if was:
            left = made[was] & ~bit
            if left:
                made[was] = left
            else:
                del made[was]
        if count:
            made[count] = made.get(count, 0) | bit
        tasks[node] = count
    return room if made is None else made


def _within(room: Room, nodes: Mask) -> Room:
    return {tasks: mask for tasks, all_of in room.items() if (mask := all_of & nodes)}


def _union(room: Room) -> Mask:
    found = 0
    for mask in room.values():
        found |= mask
    return found


def is_enough(job: SlurmJob, room: Room, nodes: Mask) -> bool:
    """Tell whether so many of these nodes, and so much on them, is free as a job needs."""
    count = size = 0
    for tasks, mask in room.items():
        found = (mask & nodes).bit_count()
        count += found
        size += tasks * found
    if count < job.needed_nodes or size < job.tasks:
        return False
    if not job.counts:
        return True
    usable = _union(room) & nodes
    return all((usable & mask).bit_count() >= most for mask, most in job.counts)


def _runs(nodes: Mask) -> list[Mask]:
    """Return runs of consecutive nodes."""
    runs: list[Mask] = []
    while nodes:
        beyond = nodes + (nodes & -nodes)
        runs.append(nodes & ~beyond)
        nodes &= beyond
    return runs


def _pick(group: Room, most: int, ranks: Sequence[float]) -> tuple[int, int]:
    """Return the node to take next, and how many tasks it can take."""
    if ranks:
        found = []
        for tasks, mask in group.items():
            rest = mask
            while rest:
                node = (rest & -rest).bit_length() - 1
                rest &= rest - 1
                found.append((ranks[node], node, tasks))
        _, node, tasks = min(found)
        return node, tasks
    tasks = min([tasks for tasks in group if tasks >= most], default=0) or max(group)
    return (group[tasks] & -group[tasks]).bit_length() - 1, tasks


def _filled(job: SlurmJob, room: Room, parts: Sequence[Mask], ranks: Sequence[float]) -> Placement:
    """Lay tasks on nodes: the part that suffices with the least room, else the largest, then the
    rest again; inside a part the node that holds the rest with the least room, else the largest.
    """
    left, nodes_left = job.tasks, job.needed_nodes
    if len(room) == 1:
        [(each, nodes)] = room.items()
        sizes = [each * (nodes & part).bit_count() for part in parts]
    else:
        nodes, pairs = _union(room), list(room.items())
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
        group = _within(room, left_parts.pop(at))
        while group and left:
            # Each further node that is asked for gets at least one task.
            most = max(left - max(nodes_left - 1, 0), 1)
            node, tasks = _pick(group, most, ranks)
            taken[node] = min(tasks, most)
            group[tasks] &= ~(1 << node)
            if not group[tasks]:
                del group[tasks]
            left -= taken[node]
            nodes_left -= 1
    return tuple(sorted(taken.items())) if not left and nodes_left <= 0 else ()


def _counted_out(job: SlurmJob, room: Room) -> Placement:
    """Lay tasks on so many nodes of each kind as a constraint asks for, those with most room first;
    our reading where kinds overlap.
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
    left, made = job.tasks - len(chosen), []
    for node, tasks in sorted(chosen.items()):
        more = min(tasks - 1, left)
        left -= more
        made.append((node, 1 + more))
    return tuple(made)


class Surplus:
    """What the controller books beyond the simulator on each node.

    It comes from whole nodes, memory by default, whole cores, and what suspended jobs still hold.

    Parameters
    ----------
    nodes : Nodes
        Of the controller.
    """

    def __init__(self, nodes: FreeNodes) -> None:
        self._nodes = nodes
        self._more: dict[int, Share] = {}

    def note(self, job: SlurmJob, demand: Demand, sign: int = 1) -> None:
        """Count a job that runs; `sign` -1 = it runs no longer."""
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

    def note_suspended(self, job: SlurmJob, sign: int = 1) -> None:
        """Count a job that is suspended: the simulator sees it hold nothing."""
        for place, tasks in job.held:
            self._add(place, self._nodes.share(job, place, tasks), sign)

    def take_from(self, gpus: list[int], cpus: list[float], mem_gb: list[float]) -> None:
        """Subtract it from what is free on each node."""
        for place, more in self._more.items():
            gpus[place] -= int(more[0])
            cpus[place] -= more[1]
            mem_gb[place] -= more[2]

    def _add(self, place: int, more: Share, sign: int) -> None:
        gpus, cpus, mem_gb = self._more.get(place, (0, 0.0, 0.0))
        self._more[place] = (
            gpus + sign * int(more[0]),
            round(cpus + sign * more[1], 6),
            round(mem_gb + sign * more[2], 6),
        )
