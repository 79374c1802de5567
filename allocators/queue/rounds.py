"""Rounds around any policy: it decides only at multiples of a round's length, as in Blox."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Final

from allocators.inner_policies import InnerPolicy, MakePolicy, SubView, is_tick, next_tick
from allocators.reasons import next_decision_reason
from sim.contract import (
    EMPTY,
    Allocator,
    Cadence,
    Card,
    Decided,
    Delta,
    JobId,
    Needs,
    ParameterError,
    Plan,
    Reason,
    Spec,
    View,
    param,
    remarks_of,
)

_NO_NEWS: Final = Delta()
_MAX_IDLE_TICKS: Final = 3  # after so many ticks without a change, ticks are ignored


@dataclass
class Rounds(Allocator):
    """Call another policy only at the start of a round.

    Notes
    -----
    Rounds begin at every multiple of ``every_s`` after the first submission [1]_. The inner policy
    gets all events of a round at once when the next one begins; its own wake-ups and ticks move to
    the first round at or after them. So GPUs freed within a round stay idle until it ends, and a
    job that arrives waits for its end even if it fits.

    References
    ----------
    .. [1] S. Agarwal et al., "Blox: A Modular Toolkit for Deep Learning Schedulers", EuroSys 2024:
       rounds of 300 s. That jobs end, and free their GPUs in the record, in the middle of a round
       is our reading.
    """

    every_s: float = param(
        300.0, title="Length of a round", unit="s", low=1, high=86_400, help="Length of a round."
    )
    inner: Spec = param(  # noqa: RUF009
        Spec("fifo"),
        title="Policy",
        help="Decides at the start of each round.",
    )
    _inside: InnerPolicy | None = field(init=False, repr=False, default=None)
    _tick_s: float = field(init=False, repr=False, default=0.0)
    _idle_ticks: int = field(init=False, repr=False, default=0)

    card = Card(
        title="Fixed rounds",
        brief="any policy, deciding at fixed intervals",
        what=("Lets another policy decide only at the start of a round, every 300 s by default."),
        cost=("Freed GPUs idle, and new jobs wait, until the round ends."),
        limits="The limits of the inner policy apply.",
        source="S. Agarwal et al., Blox, EuroSys 2024",
        certainty="our reading: a job may end within a round; its GPUs are given out in the next",
        goals=("combined",),
        how=(
            ("Time is divided into rounds of equal length, counted from the first submission."),
            (
                "When a round begins, the inner policy learns what arrived, ended or failed"
                " since the last one."
            ),
            "It then decides as if all of that had happened just now.",
            "Within a round nothing is started or stopped.",
        ),
    )

    def assemble(self, make: MakePolicy) -> None:
        """Build the inner policy.

        Raises
        ------
        ParameterError
            If it cannot be built.
        """
        self._inside = InnerPolicy(make(self.inner))

    @property
    def cadence(self) -> Cadence:
        """Decide at the start of every round, and not at events."""
        return Cadence(on_arrival=False, on_finish=False, on_capacity=False, every_s=self.every_s)

    @property
    def needs(self) -> Needs:
        """Return the needs of the inner policy."""
        return self._inner_policy().allocator.needs

    def allocate(self, view: View, /) -> Plan:
        """Call the inner policy at the start of a round if an event, tick or wake-up is pending.

        The plan wakes it at the next round that needs it.
        """
        inside, now_s = self._inner_policy(), view.now_s
        inside.notify(view.delta)
        if view.delta != _NO_NEWS:
            self._idle_ticks = 0
        if not is_tick(now_s, self.every_s):  # installed within a round, or after a delayed plan
            return Plan(wake_at_s=next_tick(now_s, self.every_s))
        ticks = self._tick_s <= now_s
        if ticks:
            self._tick_s = next_tick(now_s, inside.cadence.every_s)
        plan = EMPTY
        if ticks or inside.is_due(now_s, active=True):
            plan = inside.decide(SubView(view, inside.take_events()))
            self._idle_ticks = 0 if plan.changes or plan.refuse else self._idle_ticks + ticks
        return plan._replace(wake_at_s=self._next_round_s())

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """Explain a wait by the next round, or by the inner policy at the start of one."""
        now_s = decided.view.now_s
        if not is_tick(now_s, self.every_s):
            return next_decision_reason(next_tick(now_s, self.every_s), "the next round began")
        return self._inner_policy().allocator.explain(decided, job)

    def _next_round_s(self) -> float:
        """Return the start of the round for the inner policy's next wake-up or tick, or inf."""
        # Without a wake-up the run could end before a tick of a period longer than a round.
        ticks_on = self._idle_ticks < _MAX_IDLE_TICKS
        at_s = min(self._inner_policy().wake_at_s, self._tick_s if ticks_on else inf)
        return at_s if at_s == inf or is_tick(at_s, self.every_s) else next_tick(at_s, self.every_s)

    def remarks(self) -> tuple[str, ...]:
        """Return the notes of the inner policy."""
        return remarks_of(self._inner_policy().allocator)

    def _inner_policy(self) -> InnerPolicy:
        """Return the inner policy, or raise if it is not built."""
        if self._inside is None:
            raise ParameterError(
                "rounds: the inner policy is not built yet. Build this one with allocators.make."
            )
        return self._inside
