"""Free GPUs of all pools as arrays, and the six ways to choose nodes in one of them.

All functions here and in the loops are compiled, see `sim.engine.fast.compiled`. They use only
loops, numbers and items of arrays, and allocate no memory.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

NOWHERE: Final = -1
PACK, FEWEST, CONSOLIDATE, FIRST_FIT, SPREAD, ANYWHERE = range(6)
"""How nodes are chosen; see `allocators.placement`."""
SPOTS: Final = 0
"""Where `Room.at` counts the spots written so far."""


class Room(NamedTuple):
    """The free GPUs. Nodes of a pool are numbered through as places, those of all pools as slots.

    Parameters
    ----------
    words : array of int64
        For each pool and number of free GPUs the set of places, 32 of them in a word.
    count : array of int64
        The size of each of these sets.
    free : array of int64, shape (pools,)
        Free GPUs of each pool.
    level : array of int64, shape (slots,)
        Free GPUs of each node.
    base : array of int64, shape (pools, 5) as one row
        Of each pool: its first slot, nodes, most GPUs of a node, first word and first count.
    bit : array of int64, shape (37,)
        Number of the only bit that is set in x, at x % 37.
    spot_slot, spot_gpus : array of int32
        Where gangs are: slots and GPUs there, one gang behind the other.
    seen : array of int64, shape (slots,)
        GPUs that a gang takes while it is spread; else 0.
    at : array of int64
        See `SPOTS`.
    """

    words: Any
    count: Any
    free: Any
    level: Any
    base: Any
    bit: Any
    spot_slot: Any
    spot_gpus: Any
    seen: Any
    at: Any


def move(items: Any, first: int, end: int, by: int) -> None:
    """Move items to the right, or to the left (negative), without a copy of the slice."""
    if by > 0:
        for at in range(end - 1, first - 1, -1):
            items[at + by] = items[at]
    else:
        for at in range(first, end):
            items[at + by] = items[at]


def next_at(room: Room, pool: int, level: int, start: int) -> int:
    """Return the first place from `start` on with exactly so many free GPUs."""
    if room.count[room.base[5 * pool + 4] + level] == 0:
        return NOWHERE
    nodes = room.base[5 * pool + 1]
    if start >= nodes:
        return NOWHERE
    width = (nodes + 31) >> 5
    first = room.base[5 * pool + 3] + level * width
    at = start >> 5
    word = room.words[first + at] & (-1 << (start & 31))
    while word == 0:
        at += 1
        if at == width:
            return NOWHERE
        word = room.words[first + at]
    found: int = (at << 5) + room.bit[(word & -word) % 37]
    return found


def shift(room: Room, pool: int, place: int, gpus: int) -> None:
    """Take GPUs of a node, or give them back (negative)."""
    base = 5 * pool
    slot = room.base[base] + place
    width = (room.base[base + 1] + 31) >> 5
    old = room.level[slot]
    new = old - gpus
    at, bit = room.base[base + 3] + (place >> 5), 1 << (place & 31)
    room.words[at + old * width] ^= bit
    room.words[at + new * width] ^= bit
    room.count[room.base[base + 4] + old] -= 1
    room.count[room.base[base + 4] + new] += 1
    room.level[slot] = new
    room.free[pool] -= gpus


def give(room: Room, pool: int, first: int, spots: int) -> None:
    """Give back what a gang holds, given as its first spot and their number."""
    slot = room.base[5 * pool]
    for at in range(first, first + spots):
        shift(room, pool, room.spot_slot[at] - slot, -room.spot_gpus[at])


def take(room: Room, pool: int, first: int, spots: int) -> None:
    """Take what a gang has held before."""
    slot = room.base[5 * pool]
    for at in range(first, first + spots):
        shift(room, pool, room.spot_slot[at] - slot, room.spot_gpus[at])


def one_node(room: Room, pool: int, need: int, below: int) -> int:
    """Return the place of the fullest node with room for a whole gang, with fewer than `below`
    GPUs free.
    """
    for level in range(need, min(below, room.base[5 * pool + 2] + 1)):
        place = next_at(room, pool, level, 0)
        if place >= 0:
            return place
    return NOWHERE


def put(room: Room, pool: int, at: int, place: int, gpus: int) -> int:
    """Write a spot."""
    room.spot_slot[at] = room.base[5 * pool] + place
    room.spot_gpus[at] = gpus
    return at + 1


def fewest(room: Room, pool: int, need: int) -> int:
    """Find the fewest nodes; return the end of their spots."""
    at: int = room.at[SPOTS]
    most = room.base[5 * pool + 2]
    alone = one_node(room, pool, need, most + 1)
    if alone >= 0:
        return put(room, pool, at, alone, need)
    for level in range(most, 0, -1):
        place = next_at(room, pool, level, 0)
        while place >= 0 and need > level:
            at = put(room, pool, at, place, level)
            need -= level
            place = next_at(room, pool, level, place + 1)
        if place >= 0:
            # The last node only takes the rest: the fullest one with room for it.
            last = one_node(room, pool, need, level)
            return put(room, pool, at, last if last >= 0 else place, need)
    return at


def lowest_last(room: Room, pool: int, end: int) -> int:
    """Move the rest of a gang on the fewest nodes to the lowest node with room for it."""
    first, last = room.at[SPOTS], end - 1
    base, need, best = room.base[5 * pool], room.spot_gpus[last], NOWHERE
    for level in range(need, room.base[5 * pool + 2] + 1):
        place, at = next_at(room, pool, level, 0), first
        while place >= 0 and at < last:
            # the nodes before were taken in order, and whole
            if room.spot_slot[at] == base + place:
                place, at = next_at(room, pool, level, place + 1), first
            else:
                at += 1
        if place >= 0 and (best < 0 or place < best):
            best = place
    room.spot_slot[last] = base + best
    return end


def pack(room: Room, pool: int, need: int) -> int:
    """Fill the fullest nodes first."""
    at: int = room.at[SPOTS]
    for level in range(1, room.base[5 * pool + 2] + 1):
        place = next_at(room, pool, level, 0)
        while place >= 0:
            part = min(level, need)
            at = put(room, pool, at, place, part)
            need -= part
            if need == 0:
                return at
            place = next_at(room, pool, level, place + 1)
    return at


def anywhere(room: Room, pool: int, need: int) -> int:
    """Take any free GPUs, lowest node first."""
    at: int = room.at[SPOTS]
    slot, place = room.base[5 * pool], 0
    while need > 0:
        part = min(room.level[slot + place], need)
        if part > 0:
            at = put(room, pool, at, place, part)
            need -= part
        place += 1
    return at


def spread(room: Room, pool: int, need: int) -> int:
    """Take one GPU after the other from the emptiest node, and sort the spots by node."""
    first: int = room.at[SPOTS]
    at, level, slot = first, room.base[5 * pool + 2], room.base[5 * pool]
    while need > 0:
        place = next_at(room, pool, level, 0)
        if place < 0:
            level -= 1
            continue
        shift(room, pool, place, 1)
        if room.seen[slot + place] == 0:
            back = at
            while back > first and room.spot_slot[back - 1] > slot + place:
                room.spot_slot[back] = room.spot_slot[back - 1]
                back -= 1
            room.spot_slot[back] = slot + place
            at += 1
        room.seen[slot + place] += 1
        need -= 1
    for back in range(first, at):
        room.spot_gpus[back] = room.seen[room.spot_slot[back]]
        room.seen[room.spot_slot[back]] = 0
    return at


def place_in(room: Room, pool: int, need: int, how: int, ever: int) -> int:
    """Take room for a gang in a pool; return the number of spots, 0 = there is no room.

    ``ever`` is the number of nodes on which the gang would be in an empty pool.
    """
    if room.free[pool] < need:
        return 0
    first: int = room.at[SPOTS]
    if how == SPREAD:
        end = spread(room, pool, need)
        room.at[SPOTS] = end
        return end - first
    if how == PACK:
        end = pack(room, pool, need)
    elif how == ANYWHERE:
        end = anywhere(room, pool, need)
    else:
        end = fewest(room, pool, need)
        if how == FIRST_FIT:
            end = lowest_last(room, pool, end)
    if how in (CONSOLIDATE, FIRST_FIT) and end - first > ever:
        return 0
    take(room, pool, first, end - first)
    room.at[SPOTS] = end
    return end - first
