"""The recipe of a comparison: one scenario under several allocators, repeated over seeds; what Run,
Save and the address hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final
from zlib import crc32

from sim.errors import ParameterError
from sim.params import Spec, is_file_text
from trainyard.study import catalog
from trainyard.study.document import Document, checked_fields, whole
from trainyard.study.scenario import Scenario, as_meant, as_spec

MAX_REPEATS: Final = 1000
LONGEST_NAME: Final = 40
"""Characters of the name of a policy."""
_IN_NAMES: Final = " .,+-=()/%·"
_NONE: Final = "No policy is chosen. Choose at least one."
SLOTS: Final = 5
"""Colors beside the gray of the baseline; see `trainyard.views.charts.theme`."""
PREFERRED_SLOTS: Final[Mapping[str, int]] = {
    "fifo": 5,
    "recorded": 4,
    "sjf": 3,
    "easy": 1,
    "conservative": 4,
    "slurm": 1,
    "kai": 4,
    "kueue": 1,
    "srtf": 2,
    "las": 4,
    "mip_elastic": 5,
    "greedy_elastic": 1,
    "dp_elastic": 3,
    "gavel": 3,
    "hadar": 2,
    "hadare": 4,
    "asrpt": 5,
    "aiturbo": 2,
    "optimus": 3,
    "dlrover": 4,
    "partition": 5,
    "switch": 1,
    "rounds": 3,
    "quota": 3,
}
"""Policy -> the slot it gets while no other policy has it, so that policies often compared differ:
1 blue, 2 vermilion, 3 green, 4 purple, 5 bronze. Any other policy gets one by its name.
"""


@dataclass(frozen=True)
class Study(Document):
    """One comparison: the same jobs and machines under several allocators, repeated over seeds.

    Parameters
    ----------
    base : Scenario
        All but the allocator; its allocator is set to that of the baseline.
    allocators : tuple of Spec
        What is compared, in order.
    baseline : int
        Place in `allocators` of the one that others are compared with.
    repeats : int
        Runs per allocator, with seeds ``base.seed``, ``base.seed + 1``, ...
    slots : tuple of int
        The colour of each allocator, from 1 to `SLOTS`; missing ones are assigned. They change no
        result, so studies are equal and have the same digest whatever their colours.
    names : tuple of str
        What the user calls each allocator; "" = by its settings. They change no result either.
        Marks are left out, because names become parts of sentences, tables and file names.
    """

    base: Scenario
    allocators: tuple[Spec, ...]
    baseline: int = 0
    repeats: int = 1
    slots: tuple[int, ...] = field(default=(), compare=False)
    names: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Check and bring into canonical form."""
        object.__setattr__(
            self,
            "allocators",
            tuple(catalog.canonical("allocator", spec) for spec in self.allocators),
        )
        object.__setattr__(self, "baseline", whole("baseline", self.baseline))
        object.__setattr__(self, "repeats", whole("repeats", self.repeats))
        if not self.allocators:
            raise ParameterError(_NONE)
        if not 0 <= self.baseline < len(self.allocators):
            raise ParameterError(
                f"baseline = {self.baseline} is not a place in the list of {len(self.allocators)}"
                " allocators, counted from 0."
            )
        if not 1 <= self.repeats <= MAX_REPEATS:
            raise ParameterError(f"repeats = {self.repeats} is outside 1 to {MAX_REPEATS}.")
        object.__setattr__(
            self, "base", replace(self.base, allocator=self.allocators[self.baseline])
        )
        slots = _assigned_slots(self.slots, self.allocators, self.baseline)
        object.__setattr__(self, "slots", slots)
        names = tuple(cleaned(name) for name in self.names[: len(self.allocators)])
        missing = ("",) * (len(self.allocators) - len(names))
        object.__setattr__(self, "names", names + missing)

    @property
    def titles(self) -> tuple[str, ...]:
        """What users read of each allocator, unique in this study."""
        return titles(self.allocators, self.names)

    @property
    def labels(self) -> tuple[str, ...]:
        """A short name per allocator, unique in this study and safe as a file name."""
        return labels(self.allocators)

    def repeated(self, at: int) -> list[Scenario]:
        """Return the scenarios of the allocator at this place, one per seed."""
        return [
            replace(self.base, allocator=self.allocators[at], seed=self.base.seed + turn)
            for turn in range(self.repeats)
        ]

    def scenarios(self) -> list[Scenario]:
        """Return all scenarios: first seed for every allocator, then the next seed, so that a first
        comparison is complete early.
        """
        columns = [self.repeated(at) for at in range(len(self.allocators))]
        return [column[turn] for turn in range(self.repeats) for column in columns]

    def only(self, places: Sequence[int]) -> Study:
        """Return the study with the policies at these places; the first becomes the baseline if
        that is not among them.
        """
        specs = tuple(self.allocators[at] for at in places)
        return replace(
            self,
            allocators=specs,
            baseline=places.index(self.baseline) if self.baseline in places else 0,
            slots=tuple(self.slots[at] for at in places),
            names=tuple(self.names[at] for at in places),
        )

    def choosing(self, specs: Sequence[Spec], baseline: int = 0) -> Study:
        """Return the study of other policies; those that stay keep their colour and name."""
        chosen = tuple(catalog.canonical("allocator", spec) for spec in specs)
        kept = _kept_slots(self.allocators, chosen)
        slots = tuple(0 if at is None else self.slots[at] for at in kept)
        names = tuple("" if at is None else self.names[at] for at in kept)
        return replace(self, allocators=chosen, baseline=baseline, slots=slots, names=names)

    def coloured_as(self, other: Study) -> Study:
        """Return the study with the colours of one that has the same policies."""
        return replace(self, slots=other.slots)

    def calling(self, at: int, name: str) -> Study:
        """Return the study in which the policy at this place has a name; "" = none of its own."""
        return replace(self, names=(*self.names[:at], name, *self.names[at + 1 :]))

    def to_json(self) -> dict[str, Any]:
        """Return plain values: what Save writes and the address holds."""
        base = {
            key: value
            for key, value in self.base.to_json().items()
            if key not in ("allocator", "kind")
        }
        return {
            "kind": "study",
            "base": base,
            "allocators": [spec.to_json() for spec in self.allocators],
            "baseline": self.baseline,
            "repeats": self.repeats,
            "slots": list(self.slots),
            **({"names": list(self.names)} if any(self.names) else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], also: Sequence[Spec] = ()) -> Study:
        """Read what `to_json` of a study or of a scenario wrote; a scenario becomes a study of one
        allocator.

        Parameters
        ----------
        data : mapping
            The document.
        also : sequence of Spec
            Policies that the document around it adds.

        Raises
        ------
        TrainyardError
            If a key is missing or unknown, or a value cannot be used.
        """
        if not isinstance(data, Mapping):
            raise ParameterError(
                "This is not a scenario: it holds no table of settings. Use a file that Save wrote."
            )
        if "allocators" not in data:
            scenario = Scenario.from_json(as_meant(data, also))
            return cls(scenario, (scenario.allocator,))
        known = checked_fields("study", data, cls)
        chosen = known.pop("allocators")
        if (
            not isinstance(chosen, Sequence)
            or isinstance(chosen, str)
            or not isinstance(known.get("base"), Mapping)
        ):
            raise ParameterError(
                "A study needs 'base' (a scenario) and 'allocators' (a list). Use a file that Save"
                " wrote."
            )
        specs = tuple(as_spec(spec) for spec in chosen)
        if not specs:
            raise ParameterError(_NONE)
        for key, kind, what in (("slots", int, "numbers"), ("names", str, "names")):
            given = known.setdefault(key, ())
            if not isinstance(given, list | tuple) or not all(isinstance(x, kind) for x in given):
                raise ParameterError(f"{key} = {given} is not a list of {what}.")
            known[key] = tuple(given)
        base = Scenario.from_json(
            {**as_meant(known.pop("base"), (*specs, *also)), "allocator": specs[0]}
        )
        return cls(base, specs, **known)

    def named(self, name: str) -> Study:
        """Return the study under another name, which changes no result."""
        return self if name == self.base.name else replace(self, base=replace(self.base, name=name))

    def matches(self, other: Study) -> bool:
        """Tell whether another study asks for the same, whatever it is called."""
        return self == other.named(self.base.name)

    @property
    def digest(self) -> str:
        """The id that is shown beside a saved scenario: a hash of everything but the name."""
        return hashlib.blake2b(self.named("").canonical().encode(), digest_size=8).hexdigest()


def labels(specs: Sequence[Spec]) -> tuple[str, ...]:
    """Name allocators, with the parameters that are not as usual; exact repetitions get a
    number.
    """
    made: list[str] = []
    for spec in specs:
        label = _safe(
            " ".join(
                [spec.name, *(f"{key}={_plain_text(value)}" for key, value in unusual(spec, specs))]
            )
        )
        made.append(
            next(
                name
                for turn in range(1, len(specs) + 1)
                if (name := label if turn == 1 else f"{label} +{turn}") not in made
            )
        )
    return tuple(made)


def titles(specs: Sequence[Spec], names: Sequence[str] = ()) -> tuple[str, ...]:
    """Name policies for users: by their own names, or by the titles of their cards and the
    parameters that are not as usual; exact repetitions get a number.
    """
    return _titles(tuple(specs), tuple(names) or ("",) * len(specs))


@lru_cache(maxsize=256)
def _titles(specs: tuple[Spec, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    made: list[str] = []
    for spec, name in zip(specs, names, strict=True):
        told = [catalog.in_words(spec.name, *item) for item in unusual(spec, specs)]
        title = name or " · ".join([catalog.allocator(spec).title, *told])
        count = sum(known == title or known.startswith(f"{title} #") for known in made) + 1
        made.append(title if count == 1 else f"{title} #{count}")
    return tuple(made)


def cleaned(name: str) -> str:
    """Return a name of a policy without marks and surplus spaces, and no longer than
    `LONGEST_NAME`.
    """
    kept = "".join(letter if letter.isalnum() or letter in _IN_NAMES else " " for letter in name)
    return " ".join(kept.split())[:LONGEST_NAME].strip()


def unusual(spec: Spec, specs: Sequence[Spec]) -> list[tuple[str, Any]]:
    """Return the parameters that its name tells: those that are not at their defaults, but for what
    all of several allocators have in common, and files that all of its kind read.
    """
    shared = (
        set.intersection(*(set(other.params) for other in specs)) if len(set(specs)) > 1 else set()
    )
    alike = [other.values for other in specs if other.name == spec.name]
    return [
        (key, value)
        for key, value in spec.params
        if (key, value) not in shared
        and not (is_file_text(value) and all(one.get(key) == value for one in alike))
    ]


def _plain_text(value: Any) -> str:
    return str(Spec.of("x", value=value)).removeprefix("x:value=")


def _safe(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in " ._=,()+-" else "-" for letter in text)[
        :100
    ].strip(" .")


def _assigned_slots(given: Sequence[int], specs: Sequence[Spec], baseline: int) -> tuple[int, ...]:
    """Return one slot per policy, from 1 to `SLOTS`.

    Parameters
    ----------
    given : sequence of int
        Slots of the first policies; 0 = none yet. Missing ones are assigned, those beyond the last
        policy are left out.
    specs : sequence of Spec
        The policies.
    baseline : int
        Place of the one that is drawn in grey. Its slot waits, and is shared before any other is.

    Raises
    ------
    ParameterError
        If a slot is outside 0 to `SLOTS`.
    """
    slots = [whole("slots", slot) for slot in given[: len(specs)]]
    slots += [0] * (len(specs) - len(slots))
    if any(slot > SLOTS for slot in slots):
        raise ParameterError(f"slots = {slots} holds a slot outside 1 to {SLOTS}.")
    # The baseline takes its slot last: it is grey.
    for at in sorted(range(len(slots)), key=lambda at: at == baseline):
        if not slots[at]:
            slots[at] = _free_slot(preferred_slot(specs[at].name), slots, baseline)
    return tuple(slots)


def _kept_slots(before: Sequence[Spec], after: Sequence[Spec]) -> tuple[int | None, ...]:
    """Return which policies stay when others are chosen: for each one that there is, its place
    among those that there were; None = a new policy.

    Parameters
    ----------
    before : sequence of Spec
        The policies that there were.
    after : sequence of Spec
        The policies that there are, in canonical form. One whose settings changed stays at its
        place.
    """
    pairs = [(at, place) for place in range(len(after)) for at in range(len(before))]
    same = [(at, place) for at, place in pairs if before[at] == after[place]]
    changed = [
        (at, place)
        for at, place in pairs
        if at == place and len(after) == len(before) and before[at].name == after[at].name
    ]
    found: dict[int, int] = {}
    for at, place in [*sorted(same, key=lambda pair: pair[0] != pair[1]), *changed]:
        if place not in found and at not in found.values():
            found[place] = at
    return tuple(found.get(at) for at in range(len(after)))


def preferred_slot(policy: str) -> int:
    """Return the slot a policy gets while it is free: from the table, or else by its name."""
    return PREFERRED_SLOTS.get(policy) or crc32(policy.encode()) % SLOTS + 1


def _free_slot(preferred: int, slots: Sequence[int], baseline: int) -> int:
    """Return the preferred slot or else the next free one; if none is free, that of the baseline,
    and then the one of the fewest policies.
    """
    drawn = [slot for at, slot in enumerate(slots) if at != baseline]
    order = [(preferred + step - 1) % SLOTS + 1 for step in range(SLOTS)]
    return min(order, key=lambda slot: (drawn.count(slot), slot in slots))
