"""Free GPUs of all pools as arrays, and the six ways to choose nodes in one pool.

All functions here and in the loops are compiled, see `sim.engine.fast.compiled`. They use only
loops, numbers and array items, and allocate no memory.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

NOWHERE: Final = -1
PACK, FEWEST, CONSOLIDATE, FIRST_FIT, SPREAD, ANYWHERE = range(6)
"""Ways to choose nodes; see `allocators.placement`."""
SPOTS: Final = 0
"""Index in `Room.at` of the number of spots written so far."""


class Room(NamedTuple):
    """Free GPUs of all nodes.

    Places number the nodes of one pool, slots those of all pools.

    Parameters
    ----------
    words : array of int64
        Set of places for each pool and number of free GPUs, 32 places per word.
    count : array of int64
        Size of each of these sets.
    free : array of int64, shape (pools,)
        Free GPUs of each pool.
    level : array of int64, shape (slots,)
        Free GPUs of each node.
    base : array of int64, shape (pools, 5) as one row
        First slot, nodes, most GPUs of a node, first word and first count of each pool.
    bit : array of int64, shape (37,)
        Number of the only set bit of x, at x % 37.
    spot_slot, spot_gpus : array of int32
        Slot and GPUs of each spot; the spots of a gang are consecutive.
    seen : array of int64, shape (slots,)
        GPUs per node of the gang that is being spread; else 0.
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


def move_items(items: Any, first: int, end: int, by: int) -> None:
    """Move items[first:end] by `by` places to the right (negative: to the left), in place."""
    if by > 0:
        for at in range(end - 1, first - 1, -1):
            items[at + by] = items[at]
    else:
        for at in range(first, end):
            items[at + by] = items[at]


def next_place(room: Room, pool: int, level: int, start: int) -> int:
    """Return the first place from `start` on with exactly `level` free GPUs; -1 = none."""
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
    place: int = (at << 5) + room.bit[(word & -word) % 37]
    return place


def shift_gpus(room: Room, pool: int, place: int, gpus: int) -> None:
    """Take GPUs of a node, or free them (negative)."""
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


def free_spots(room: Room, pool: int, first: int, spots: int) -> None:
    """Free the GPUs of a gang, given its first spot and number of spots."""
    slot = room.base[5 * pool]
    for at in range(first, first + spots):
        shift_gpus(room, pool, room.spot_slot[at] - slot, -room.spot_gpus[at])


def take_spots(room: Room, pool: int, first: int, spots: int) -> None:
    """Take the GPUs of a gang's spots."""
    slot = room.base[5 * pool]
    for at in range(first, first + spots):
        shift_gpus(room, pool, room.spot_slot[at] - slot, room.spot_gpus[at])


def fullest_fitting_node(room: Room, pool: int, need: int, below: int) -> int:
    """Return the place of the fullest node that fits a whole gang; -1 = none.

    Only nodes with fewer than `below` free GPUs.
    """
    for level in range(need, min(below, room.base[5 * pool + 2] + 1)):
        place = next_place(room, pool, level, 0)
        if place >= 0:
            return place
    return NOWHERE


def write_spot(room: Room, pool: int, at: int, place: int, gpus: int) -> int:
    """Write a spot of a gang, and return the index of the next one."""
    room.spot_slot[at] = room.base[5 * pool] + place
    room.spot_gpus[at] = gpus
    return at + 1


def place_on_fewest(room: Room, pool: int, need: int) -> int:
    """Write a gang's spots on the fewest nodes; return the index after the last.

    Takes no GPUs yet. Uses the emptiest nodes, but for the last part the fullest that fits it.
    """
    at: int = room.at[SPOTS]
    most = room.base[5 * pool + 2]
    single = fullest_fitting_node(room, pool, need, most + 1)
    if single >= 0:
        return write_spot(room, pool, at, single, need)
    for level in range(most, 0, -1):
        place = next_place(room, pool, level, 0)
        while place >= 0 and need > level:
            at = write_spot(room, pool, at, place, level)
            need -= level
            place = next_place(room, pool, level, place + 1)
        if place >= 0:
            # The last node only takes the remainder: the fullest node that fits it.
            last = fullest_fitting_node(room, pool, need, level)
            return write_spot(room, pool, at, last if last >= 0 else place, need)
    return at


def move_last_spot_lower(room: Room, pool: int, end: int) -> int:
    """Move the last spot of a gang to the lowest unused node that fits; return `end`."""
    first, last = room.at[SPOTS], end - 1
    base, need, best = room.base[5 * pool], room.spot_gpus[last], NOWHERE
    for level in range(need, room.base[5 * pool + 2] + 1):
        place, at = next_place(room, pool, level, 0), first
        while place >= 0 and at < last:
            # the previous nodes were taken in order, and completely
            if room.spot_slot[at] == base + place:
                place, at = next_place(room, pool, level, place + 1), first
            else:
                at += 1
        if place >= 0 and (best < 0 or place < best):
            best = place
    room.spot_slot[last] = base + best
    return end


def place_packed(room: Room, pool: int, need: int) -> int:
    """Write a gang's spots on the fullest nodes first; return the index after the last."""
    at: int = room.at[SPOTS]
    for level in range(1, room.base[5 * pool + 2] + 1):
        place = next_place(room, pool, level, 0)
        while place >= 0:
            part = min(level, need)
            at = write_spot(room, pool, at, place, part)
            need -= part
            if need == 0:
                return at
            place = next_place(room, pool, level, place + 1)
    return at


def place_anywhere(room: Room, pool: int, need: int) -> int:
    """Write a gang's spots on free GPUs, lowest node first; return the index after the last."""
    at: int = room.at[SPOTS]
    slot, place = room.base[5 * pool], 0
    while need > 0:
        part = min(room.level[slot + place], need)
        if part > 0:
            at = write_spot(room, pool, at, place, part)
            need -= part
        place += 1
    return at


def place_spread(room: Room, pool: int, need: int) -> int:
    """Take one GPU at a time from the emptiest node; return the index after the last spot.

    The spots are written in order of nodes. Unlike the other ways it takes the GPUs at once.
    """
    first: int = room.at[SPOTS]
    at, level, slot = first, room.base[5 * pool + 2], room.base[5 * pool]
    while need > 0:
        place = next_place(room, pool, level, 0)
        if place < 0:
            level -= 1
            continue
        shift_gpus(room, pool, place, 1)
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


def place_in_pool(room: Room, pool: int, need: int, how: int, ever: int) -> int:
    """Write a gang's spots in a pool and take its GPUs; return their number, 0 = no room.

    ``ever``: number of nodes that the gang needs in an empty pool. `CONSOLIDATE` and `FIRST_FIT`
    use no more.
    """
    if room.free[pool] < need:
        return 0
    first: int = room.at[SPOTS]
    if how == SPREAD:
        end = place_spread(room, pool, need)
        room.at[SPOTS] = end
        return end - first
    if how == PACK:
        end = place_packed(room, pool, need)
    elif how == ANYWHERE:
        end = place_anywhere(room, pool, need)
    else:
        end = place_on_fewest(room, pool, need)
        if how == FIRST_FIT:
            end = move_last_spot_lower(room, pool, end)
    if how in (CONSOLIDATE, FIRST_FIT) and end - first > ever:
        return 0
    take_spots(room, pool, first, end - first)
    room.at[SPOTS] = end
    return end - first
