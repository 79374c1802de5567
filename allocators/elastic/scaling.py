"""What every elastic policy shares: which sizes a job may have and how fast it is at each, what
there is to divide, and the way from sizes to nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np

from allocators.elastic.seats import NOWHERE, Areas, Range, UnitPlacer, admissible, gpus_by_node
from allocators.placement import Placer
from allocators.toolkit import none_of
from sim.contract import (
    Decided,
    Demand,
    Floats,
    Grant,
    Ints,
    JobId,
    Reason,
    Shape,
    Tuning,
    Value,
    View,
    param,
)

GRANULARITIES: Final = ("gpu", "node")
SIZES: Final = ("powers", "all")
Profile = Callable[[View, Ints, Sequence[Shape]], Floats]
"""Estimated work per second of jobs, of shape (jobs, shapes)."""
Tuned = Callable[[JobId, int], Tuning]
"""The tuning of a job at a number of units."""

_AT_ONCE = 1024  # jobs whose rates are asked for in one call
_ALMOST_NOTHING = 1e-12


def granularity_param() -> Any:
    """Declare the parameter ``granularity``."""
    return param(
        "gpu",
        title="Unit of allocation",
        choices=GRANULARITIES,
        labels={"gpu": "GPUs", "node": "Whole nodes"},
        help=(
            "gpu: sizes are numbers of GPUs. node: whole nodes; nodes of different"
            " sizes are allocated separately."
        ),
    )


def sizes_param() -> Any:
    """Declare the parameter ``sizes``."""
    return param(
        "powers",
        title="Sizes considered",
        choices=SIZES,
        labels={"powers": "Powers of two", "all": "Every size"},
        help=(
            "powers: powers of two in the job's range, both its ends, and the request."
            " all: every size in the range."
        ),
    )


def jobs_were(count: int) -> str:
    """Begin a sentence on so many jobs."""
    return "1 job was" if count == 1 else f"{count:,} jobs were"


class SizeOptions(NamedTuple):
    """The sizes that a job may have in a market.

    Parameters
    ----------
    job : int
        The job.
    sizes : tuple of int
        In units, ascending.
    rates : tuple of float
        Estimated work per second at each size, above 0.
    held : int
        Units held now; 0 = waiting.
    fixed : bool
        Whether it must neither be resized nor stopped: a job that must not be stopped once it runs,
        or one that spans markets.
    """

    job: JobId
    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    held: int
    fixed: bool = False


class Market(NamedTuple):
    """What there is of one GPU type, of whole nodes also of one size, and who may have it.

    Parameters
    ----------
    pools : tuple of int
        Pools of nodes.
    unit : int
        GPUs per unit.
    capacity : int
        Units to divide: those that nobody uses, and those held by `running`.
    running, waiting : tuple of Option
        In order of job id, which is the order of arrival.
    """

    pools: tuple[int, ...]
    unit: int
    capacity: int
    running: tuple[SizeOptions, ...]
    waiting: tuple[SizeOptions, ...]


Choose = Callable[[Market], Mapping[JobId, int]]
"""Units for every running job (0 = stop it), and for those waiting jobs that shall start."""


class _Held(NamedTuple):
    """What is known of a running job as long as it keeps its grant; without an option it is not in
    any market.
    """

    grant: Grant
    area: int
    option: SizeOptions | None


class Menu:
    """Keeps the sizes and estimated speeds of all active jobs, and turns chosen sizes into grants.

    Parameters
    ----------
    place : Placer
        Chooses nodes, and the order of GPU types.
    granularity : str
        "gpu" or "node": what a unit is.
    sizes : str
        "powers" or "all": the admissible sizes between a job's least and largest.
    most : int, GPUs
        Largest size of any job, but never below its least; 0 = no cap.
    profile : Profile or None
        Where estimated speeds come from; None = the view's estimates.

    Notes
    -----
    On a cluster of several GPU types each is a market of its own; our reading, the papers have one
    type. A running job stays in its market. Jobs of the same type that are confined to different
    nodes, without any in common, are in different markets too; and so are whole nodes of different
    sizes, the largest first. Rates are asked for once, when a job is first seen.
    """

    def __init__(
        self,
        place: Placer,
        *,
        granularity: str,
        sizes: str,
        most: int = 0,
        profile: Profile | None = None,
    ) -> None:
        self._place, self._whole, self._every, self._cap = (
            place,
            granularity == "node",
            sizes == "all",
            most,
        )
        self._profile = profile or _estimated
        self._placer = UnitPlacer(place, whole=self._whole)
        self._areas = Areas(place, whole=self._whole)
        self._offers: dict[JobId, dict[int, SizeOptions]] = {}
        self._held: dict[JobId, _Held] = {}
        self._into: dict[JobId, int] = {}
        self._most: dict[tuple[int, int], int] = {}
        self._admissible: dict[tuple[int, int, float, float, float], tuple[int, ...]] = {}
        self.hopeless: frozenset[JobId] = frozenset()
        """Waiting jobs for which, at the last `divide`, no size would fit even the empty cluster in
        units of this granularity: to be refused.
        """

    # -- what happened
    # ----------------------------------------------------------------------------------------------

    def feed(self, view: View) -> bool:
        """Take in what happened since the last call; return whether jobs or nodes came or went."""
        delta = view.delta
        self.forget(delta.finished)
        return bool(delta.arrived or delta.finished or delta.evicted or delta.nodes)

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Drop what is known of jobs that are gone; finished jobs are noticed without this call,
        rejected ones may be named here.
        """
        for job in jobs:
            self._offers.pop(job, None)
            self._held.pop(job, None)

    # -- sizes
    # ----------------------------------------------------------------------------------------------

    def divide(self, view: View, choose: Choose, last: JobId | None = None) -> dict[JobId, int]:
        """Let every market choose sizes, in the order of GPU types; a waiting job that is not
        served in one is offered in the next.

        Parameters
        ----------
        view : View
            The instant.
        choose : callable
            Chooses the sizes in a market.
        last : int or None
            Waiting jobs that were submitted after this one are not offered; None = all are.

        Returns
        -------
        dict
            Job -> units in its market, for every running job in a market (0 = stop it) and every
            waiting one that shall start.
        """
        running, waiting = view.running.ids.tolist(), view.waiting.ids.tolist()
        self._enlist(view, [*running, *waiting])
        self.hopeless = frozenset(
            [job for job in waiting if not self._offers[job] and view.demand(job).gpus]
        )
        waiting = waiting if last is None else [job for job in waiting if job <= last]
        held: list[list[SizeOptions]] = [[] for _ in self._areas.all]
        for job in running:
            now = self._now(view, job)
            if now.option is not None:
                held[now.area].append(now.option)
        offers, shares = self._offers, dict[JobId, int]()
        self._into = {}
        for at, (area, options) in enumerate(zip(self._areas.all, held, strict=True)):
            queue = [
                option
                for job in waiting
                if (option := offers[job].get(at)) is not None and job not in shares
            ]
            if queue or options:
                capacity = self._placer.free(view.room, area) + sum(
                    [option.held for option in options]
                )
                chosen = choose(
                    Market(area.pools, area.unit, capacity, tuple(options), tuple(queue))
                )
                shares.update({option.job: chosen[option.job] for option in options})
                started = {
                    option.job: units for option in queue if (units := chosen.get(option.job, 0))
                }
                shares.update(started)
                self._into.update(dict.fromkeys(started, at))
        return shares

    def explain(self, decided: Decided, job: JobId, rule: str) -> Reason:
        """Explain why a job has no size, after the policy's own clause about how sizes are
        chosen.
        """
        offers = self._offers.get(job, {})
        least = [option.sizes[0] * self._areas.all[at].unit for at, option in offers.items()]
        if not least:
            return Reason("no size of it is possible on this cluster")
        holders = [one for one in decided.grants if decided.held_gpus(one)]
        free = decided.free_for(job)
        values: dict[str, Value] = {
            "least": min(least),
            "holders": len(holders),
            "held": sum(decided.held_gpus(one) for one in holders),
            "free": free,
        }
        room = (
            "{free:gpus_were} free for its smallest size of {least:gpus}"
            if free < min(least)
            else "{free:gpus_were} left free"
        )
        return Reason(f"{rule}: {{holders:jobs}} got {{held:gpus}}, {room}", values)

    def passed(self, view: View, shares: Mapping[JobId, int]) -> JobId | None:
        """Return the first waiting job that `divide` gave nothing although it gave something to one
        submitted later; None if there is none.
        """
        first: JobId | None = None
        for job in view.waiting.ids.tolist():
            if shares.get(job, 0):
                if first is not None:
                    return first
            elif first is None and self._offers[job]:
                first = job
        return None

    def _enlist(self, view: View, jobs: Collection[JobId]) -> None:
        offers, demand = self._offers, view.demand
        if len(offers) > 2 * len(jobs) + _AT_ONCE:  # refused jobs leave without notice
            active = set(jobs)
            self._offers = offers = {job: offer for job, offer in offers.items() if job in active}
            self._held = {job: held for job, held in self._held.items() if job in active}
        new = [job for job in jobs if job not in offers]
        if self._areas.admit(view, {demand(job).pools for job in new if demand(job).gpus}):
            for known in (self._offers, self._held, self._most, self._admissible):
                known.clear()  # all that is known of jobs refers to the old areas
            new = list(jobs)
        for job in new:
            offers[job] = {}
        for at in range(len(self._areas.all)) if new else ():
            self._quote(view, at, new)

    def _quote(self, view: View, at: int, jobs: Iterable[JobId]) -> None:
        """Ask what jobs would do in an area at each size that they may have."""
        wanted = {job: sizes for job in jobs if (sizes := self._sizes(view, job, at))}
        union = np.array(
            sorted({size for sizes in set(wanted.values()) for size in sizes}),
            np.int64,
        )
        shapes = [self._shape(view, at, int(size)) for size in union]
        columns = {sizes: np.searchsorted(union, sizes) for sizes in set(wanted.values())}
        ids = sorted(wanted)
        for start in range(0, len(ids), _AT_ONCE):
            some = ids[start : start + _AT_ONCE]
            for job, row in zip(
                some, self._profile(view, np.array(some, np.int64), shapes), strict=True
            ):
                sizes = wanted[job]
                rates = row[columns[sizes]]
                able = rates > 0
                if able.all():
                    self._offers[job][at] = SizeOptions(job, sizes, tuple(rates.tolist()), 0)
                elif able.any():
                    self._offers[job][at] = SizeOptions(
                        job, tuple(np.array(sizes)[able].tolist()), tuple(rates[able].tolist()), 0
                    )

    def _shape(self, view: View, at: int, units: int) -> Shape:
        area = self._areas.all[at]
        gpus = units * area.unit
        return Shape(
            tuple(gpus if kind == area.type_at else 0 for kind in range(len(view.cluster.types))),
            ceil(gpus / area.per_node),
        )

    def _sizes(self, view: View, job: JobId, at: int) -> tuple[int, ...]:
        demand, area = view.demand(job), self._areas.all[at]
        if not demand.gpus or not set(demand.pools).intersection(area.pools):
            return ()
        key = (
            demand.key,
            at,
            view.one("min_gpus", job),
            view.one("max_gpus", job),
            view.one("gpus", job),
        )
        known = self._admissible.get(key)
        if known is None:
            most = min(key[3], self._cap) if self._cap else key[3]
            known = self._admissible[key] = admissible(
                Range(key[2], most, key[4]),
                area.unit,
                self._room_for(view, demand, at),
                every=self._every,
            )
        return known

    def _room_for(self, view: View, demand: Demand, at: int) -> int:
        key = (demand.key, at)
        if key not in self._most:
            self._most[key] = self._placer.most(view, demand, self._areas.all[at])
        return self._most[key]

    def _now(self, view: View, job: JobId) -> _Held:
        grant, known = view.grants[job], self._held.get(job)
        if known is None or known.grant is not grant:
            known = self._held[job] = self._look(view, job, grant)
        return known

    def _look(self, view: View, job: JobId, grant: Grant) -> _Held:
        held = gpus_by_node(grant)
        areas = self._areas.of(held)
        if not areas or NOWHERE in areas:
            return _Held(grant, NOWHERE, None)
        at = min(areas)
        units = ceil(sum(held.values()) / self._areas.all[at].unit)
        if len(areas) > 1:
            return _Held(
                grant,
                at,
                SizeOptions(job, (units,), (self._rate(view, job, grant),), units, fixed=True),
            )
        offer = self._offers[job].get(at, SizeOptions(job, (), (), 0))
        if units not in offer.sizes:
            offer = self._with(view, offer, at, units, grant)
        if view.one("preemptible", job):
            return _Held(grant, at, offer._replace(held=units))
        return _Held(
            grant,
            at,
            SizeOptions(job, (units,), (offer.rates[offer.sizes.index(units)],), units, fixed=True),
        )

    def _with(
        self, view: View, offer: SizeOptions, at: int, units: int, grant: Grant
    ) -> SizeOptions:
        """Add the size that a job was given by another policy."""
        rate = float(
            self._profile(view, np.array([offer.job], np.int64), [self._shape(view, at, units)])[
                0, 0
            ]
        )
        known = [
            *zip(offer.sizes, offer.rates, strict=True),
            (units, rate if rate > 0 else self._rate(view, offer.job, grant)),
        ]
        sizes, rates = zip(*sorted(known), strict=True)
        return SizeOptions(offer.job, sizes, rates, 0)

    @staticmethod
    def _rate(view: View, job: JobId, grant: Grant) -> float:
        return max(view.estimates.rate(job, grant), _ALMOST_NOTHING)

    # -- nodes
    # ----------------------------------------------------------------------------------------------

    def seat(
        self,
        view: View,
        sizes: Mapping[JobId, int],
        tuning: Tuned | None = None,
        *,
        in_order: bool = False,
    ) -> dict[JobId, Grant | None]:
        """Turn the sizes of `divide` into grants, and start jobs without GPUs where there is room,
        in order of arrival.

        Parameters
        ----------
        view : View
            The instant of that `divide`.
        sizes : mapping
            Job -> units. A running job that is not named, or must not be changed, keeps what it
            holds.
        tuning : callable or None
            (job, units) -> the job's tuning at that size; None = those it has, plain ones for new
            grants.
        in_order : bool
            Whether waiting jobs are placed in order of submission, and none after one that finds no
            place.

        Returns
        -------
        dict
            Changes only. Shrinking jobs stay on nodes of their own; then waiting jobs are placed,
            largest first, then growing ones. If a size does not fit, the next smaller one is tried;
            if none does, the job goes on waiting, or keeps what it holds.
        """
        resizing = _Resizing(view, tuning, {})
        starts: list[tuple[int, JobId, int]] = []
        grows: list[tuple[int, JobId, int]] = []
        for job, units in sorted(sizes.items()):
            if job not in view.grants:
                if units:
                    starts.append((-units * self._areas.all[self._into[job]].unit, job, units))
                continue
            now = self._now(view, job)
            if now.option is None or now.option.fixed:
                continue
            if units > now.option.held:
                grows.append((-units * self._areas.all[now.area].unit, job, units))
            else:
                self._reduce(resizing, now.grant, now.option, units)
        for _, job, units in sorted(starts, key=itemgetter(1) if in_order else None):
            if not self._start(resizing, job, units) and in_order:
                break
        for _, job, units in sorted(grows):
            self._grow(resizing, job, units)
        self._start_without_gpus(resizing)
        return resizing.changes

    def _reduce(self, resizing: _Resizing, grant: Grant, option: SizeOptions, units: int) -> None:
        view, job = resizing.view, option.job
        if not units:
            view.room.give(grant)
            resizing.changes[job] = None
        elif units < option.held:
            smaller = self._placer.shrink(
                view, view.demand(job), grant, units, self._areas.all[self._held[job].area]
            )
            if smaller is not None:
                resizing.enter(job, smaller, units)
        elif resizing.tuning is not None and resizing.tuning(job, units) != grant.tuning:
            resizing.enter(job, grant, units)

    def _start(self, resizing: _Resizing, job: JobId, units: int) -> bool:
        at = self._into[job]
        for size in reversed([size for size in self._offers[job][at].sizes if size <= units]):
            found = self._placer.find(
                resizing.view, resizing.view.demand(job), size, self._areas.all[at]
            )
            if found is not None:
                resizing.enter(job, found, size)
                return True
        return False

    def _grow(self, resizing: _Resizing, job: JobId, units: int) -> None:
        grant, at, option = self._held[job]
        assert option is not None, "a job outside all markets was told to grow"
        sizes = [size for size in reversed(option.sizes) if option.held < size <= units]
        larger = self._placer.grow(
            resizing.view, resizing.view.demand(job), grant, sizes, self._areas.all[at]
        )
        if larger is None:
            self._reduce(resizing, grant, option, option.held)
        else:
            resizing.enter(
                job, larger, sum(gpus_by_node(larger).values()) // self._areas.all[at].unit
            )

    def _start_without_gpus(self, resizing: _Resizing) -> None:
        view = resizing.view
        if len(view.waiting):
            full: set[int] = set()
            for job in view.waiting.ids[view.waiting.gpus == 0].tolist():
                demand = view.demand(job)
                if demand.key not in full:
                    found = self._place(view, demand)
                    if found is None:
                        full.add(demand.key)
                    else:
                        resizing.changes[job] = found


class _Resizing(NamedTuple):
    """One round of seating."""

    view: View
    tuning: Tuned | None
    changes: dict[JobId, Grant | None]

    def enter(self, job: JobId, grant: Grant, units: int) -> None:
        self.changes[job] = (
            grant if self.tuning is None else replace(grant, tuning=self.tuning(job, units))
        )


def _estimated(view: View, ids: Ints, shapes: Sequence[Shape]) -> Floats:
    return view.estimates.rates(ids, shapes)


@dataclass
class Choices:
    """Counts jobs, and looks whether any had a choice of sizes."""

    jobs: int = 0
    any_choice: bool = False

    def look(self, options: Iterable[SizeOptions]) -> None:
        """Note the sizes that jobs may have in a market."""
        self.any_choice = self.any_choice or any(len(option.sizes) > 1 for option in options)

    def remark(self, name: str, did: str) -> tuple[str, ...]:
        """Return a sentence if jobs came and all had one size only, with what the policy did
        instead.
        """
        if not self.jobs or self.any_choice:
            return ()
        return (f"{name} resized nothing, since {none_of(self.jobs)} a choice of sizes: {did}.",)
