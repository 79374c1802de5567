"""The definition of a comparison: one scenario under several policies, over seeds."""

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
from trainyard.study.document import Document, checked_fields, whole_number
from trainyard.study.scenario import Scenario, as_spec, upgrade_scenario

MAX_REPEATS: Final = 1000
MAX_NAME_LENGTH: Final = 40
"""Maximum characters of a policy name."""
_IN_NAMES: Final = " .,+-=()/%·"
_NONE: Final = "No policy is chosen. Choose at least one."
SLOTS: Final = 11
"""Number of colors without the gray of the baseline; see `trainyard.views.charts.theme`."""
PREFERRED_SLOTS: Final[Mapping[str, int]] = {
    "fifo": 5,
    "recorded": 4,
    "sjf": 11,
    "easy": 1,
    "conservative": 8,
    "slurm": 7,
    "kai": 6,
    "kueue": 9,
    "srtf": 2,
    "las": 6,
    "mip_elastic": 7,
    "greedy_elastic": 8,
    "dp_elastic": 9,
    "gavel": 3,
    "hadar": 9,
    "hadare": 10,
    "asrpt": 5,
    "aiturbo": 6,
    "optimus": 10,
    "dlrover": 11,
    "partition": 8,
    "switch": 7,
    "rounds": 10,
    "quota": 11,
}
"""Policy -> its color while unused, so that policies often compared differ: 1 blue, 2 vermilion,
3 green, 4 purple, 5 bronze, 6 red, 7 wine, 8 mauve, 9 violet, 10 indigo, 11 navy. Other policies
get a color from a hash of their name.
"""


@dataclass(frozen=True)
class Study(Document):
    """A comparison of policies on the same jobs and machines, repeated over seeds.

    Parameters
    ----------
    base : Scenario
        The common scenario; its allocator is set to the baseline.
    allocators : tuple of Spec
        Policies to compare, in order.
    baseline : int
        Index of the policy that the others are compared with.
    repeats : int
        Runs per allocator, with seeds ``base.seed``, ``base.seed + 1``, ...
    slots : tuple of int
        Color of each policy, from 1 to `SLOTS`; missing ones are assigned. Colors affect neither
        results nor equality and digest.
    names : tuple of str
        Name of each policy for users; "" = by its settings. Names affect no result. Special
        characters are removed, because names become parts of sentences and file names.
    """

    base: Scenario
    allocators: tuple[Spec, ...]
    baseline: int = 0
    repeats: int = 1
    slots: tuple[int, ...] = field(default=(), compare=False)
    names: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Validate the values and bring them into canonical form."""
        object.__setattr__(
            self,
            "allocators",
            tuple(catalog.canonical("allocator", spec) for spec in self.allocators),
        )
        object.__setattr__(self, "baseline", whole_number("baseline", self.baseline))
        object.__setattr__(self, "repeats", whole_number("repeats", self.repeats))
        if not self.allocators:
            raise ParameterError(_NONE)
        if not 0 <= self.baseline < len(self.allocators):
            raise ParameterError(
                f"baseline = {self.baseline} is not an index of the {len(self.allocators)}"
                " policies, counted from 0."
            )
        if not 1 <= self.repeats <= MAX_REPEATS:
            raise ParameterError(f"repeats = {self.repeats} is outside 1 to {MAX_REPEATS}.")
        object.__setattr__(
            self, "base", replace(self.base, allocator=self.allocators[self.baseline])
        )
        slots = _assign_slots(self.slots, self.allocators, self.baseline)
        object.__setattr__(self, "slots", slots)
        names = tuple(clean_name(name) for name in self.names[: len(self.allocators)])
        missing = ("",) * (len(self.allocators) - len(names))
        object.__setattr__(self, "names", names + missing)

    @property
    def titles(self) -> tuple[str, ...]:
        """Title of each policy for users, unique in this study."""
        return titles(self.allocators, self.names)

    @property
    def labels(self) -> tuple[str, ...]:
        """Short name of each policy, unique in this study and safe as a file name."""
        return labels(self.allocators)

    def policy_scenarios(self, policy_index: int) -> list[Scenario]:
        """Return the scenarios of one policy, one per seed."""
        return [
            replace(self.base, allocator=self.allocators[policy_index], seed=self.base.seed + turn)
            for turn in range(self.repeats)
        ]

    def scenarios(self) -> list[Scenario]:
        """Return all scenarios, ordered by seed, so that a first comparison is done early."""
        columns = [self.policy_scenarios(at) for at in range(len(self.allocators))]
        return [column[turn] for turn in range(self.repeats) for column in columns]

    def only(self, places: Sequence[int]) -> Study:
        """Return the study of some of its policies.

        The first becomes the baseline if the baseline is not among them.
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
        """Return the study with other policies; remaining ones keep color and name."""
        chosen = tuple(catalog.canonical("allocator", spec) for spec in specs)
        old_indices = _match_policies(self.allocators, chosen)
        slots = tuple(0 if at is None else self.slots[at] for at in old_indices)
        names = tuple("" if at is None else self.names[at] for at in old_indices)
        return replace(self, allocators=chosen, baseline=baseline, slots=slots, names=names)

    def coloured_as(self, other: Study) -> Study:
        """Return the study with the colors of another one with the same policies."""
        return replace(self, slots=other.slots)

    def calling(self, policy_index: int, name: str) -> Study:
        """Return the study with a name for one policy; "" = default name."""
        return replace(
            self, names=(*self.names[:policy_index], name, *self.names[policy_index + 1 :])
        )

    def to_json(self) -> dict[str, Any]:
        """Return the study as plain values, as files and URLs store it."""
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
        """Return a study from a document of `to_json`, or of a scenario as one policy.

        Parameters
        ----------
        data : mapping
            The document.
        also : sequence of Spec
            Further policies that an enclosing document uses.

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
            scenario = Scenario.from_json(upgrade_scenario(data, also))
            return cls(scenario, (scenario.allocator,))
        fields = checked_fields("study", data, cls)
        chosen = fields.pop("allocators")
        if (
            not isinstance(chosen, Sequence)
            or isinstance(chosen, str)
            or not isinstance(fields.get("base"), Mapping)
        ):
            raise ParameterError(
                "A study needs 'base' (a scenario) and 'allocators' (a list). Use a file that Save"
                " wrote."
            )
        specs = tuple(as_spec(spec) for spec in chosen)
        if not specs:
            raise ParameterError(_NONE)
        for key, kind, description in (("slots", int, "numbers"), ("names", str, "names")):
            values = fields.setdefault(key, ())
            if not isinstance(values, list | tuple) or not all(isinstance(x, kind) for x in values):
                raise ParameterError(f"{key} = {values} is not a list of {description}.")
            fields[key] = tuple(values)
        base = Scenario.from_json(
            {**upgrade_scenario(fields.pop("base"), (*specs, *also)), "allocator": specs[0]}
        )
        return cls(base, specs, **fields)

    def with_name(self, name: str) -> Study:
        """Return the study with another scenario name, which affects no result."""
        return self if name == self.base.name else replace(self, base=replace(self.base, name=name))

    def matches(self, other: Study) -> bool:
        """Return True if another study differs at most in its name."""
        return self == other.with_name(self.base.name)

    @property
    def digest(self) -> str:
        """Id of a saved study: a hash of all values except the name."""
        return hashlib.blake2b(self.with_name("").canonical().encode(), digest_size=8).hexdigest()


def labels(specs: Sequence[Spec]) -> tuple[str, ...]:
    """Return short file-safe names of policies with their distinctive parameters.

    Equal names get " +2", " +3", ...
    """
    unique_labels: list[str] = []
    for spec in specs:
        label = _safe_file_name(
            " ".join(
                [
                    spec.name,
                    *(
                        f"{key}={_plain_text(value)}"
                        for key, value in distinctive_params(spec, specs)
                    ),
                ]
            )
        )
        unique_labels.append(
            next(
                name
                for turn in range(1, len(specs) + 1)
                if (name := label if turn == 1 else f"{label} +{turn}") not in unique_labels
            )
        )
    return tuple(unique_labels)


def titles(specs: Sequence[Spec], names: Sequence[str] = ()) -> tuple[str, ...]:
    """Return titles of policies for users: given names, or card titles with parameters.

    Equal titles get a number.
    """
    return _titles(tuple(specs), tuple(names) or ("",) * len(specs))


@lru_cache(maxsize=256)
def _titles(specs: tuple[Spec, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return unique titles: own name, or policy and distinctive parameters; cached.

    Equal titles get " #2", " #3", ...
    """
    unique_titles: list[str] = []
    for spec, name in zip(specs, names, strict=True):
        params = [
            catalog.describe_param(spec.name, *item) for item in distinctive_params(spec, specs)
        ]
        title = name or " · ".join([catalog.allocator(spec).title, *params])
        count = sum(used == title or used.startswith(f"{title} #") for used in unique_titles) + 1
        unique_titles.append(title if count == 1 else f"{title} #{count}")
    return tuple(unique_titles)


def clean_name(name: str) -> str:
    """Return a policy name without special characters, at most `MAX_NAME_LENGTH` long."""
    letters = "".join(letter if letter.isalnum() or letter in _IN_NAMES else " " for letter in name)
    return " ".join(letters.split())[:MAX_NAME_LENGTH].strip()


def distinctive_params(spec: Spec, specs: Sequence[Spec]) -> list[tuple[str, Any]]:
    """Return the non-default parameters of a policy that not all compared policies share.

    Files that all policies of its kind read are left out.
    """
    shared = (
        set.intersection(*(set(other.params) for other in specs)) if len(set(specs)) > 1 else set()
    )
    same_policy = [other.values for other in specs if other.name == spec.name]
    return [
        (key, value)
        for key, value in spec.params
        if (key, value) not in shared
        and not (is_file_text(value) and all(one.get(key) == value for one in same_policy))
    ]


def _plain_text(value: Any) -> str:
    return str(Spec.of("x", value=value)).removeprefix("x:value=")


def _safe_file_name(text: str) -> str:
    """Return a text with only characters that are safe in file names."""
    return "".join(letter if letter.isalnum() or letter in " ._=,()+-" else "-" for letter in text)[
        :100
    ].strip(" .")


def _assign_slots(given: Sequence[int], specs: Sequence[Spec], baseline: int) -> tuple[int, ...]:
    """Return one color slot per policy, from 1 to `SLOTS`.

    Parameters
    ----------
    given : sequence of int
        Slots of the first policies; 0 = unassigned. Missing ones are assigned, extra ones ignored.
    specs : sequence of Spec
        The policies.
    baseline : int
        Index of the policy drawn in gray. Its slot is assigned last, and shared first.

    Raises
    ------
    ParameterError
        If a slot is outside 0 to `SLOTS`.
    """
    slots = [whole_number("slots", slot) for slot in given[: len(specs)]]
    slots += [0] * (len(specs) - len(slots))
    if any(slot > SLOTS for slot in slots):
        raise ParameterError(f"slots = {slots} holds a slot outside 1 to {SLOTS}.")
    # The baseline last: it is drawn in gray.
    for at in sorted(range(len(slots)), key=lambda at: at == baseline):
        if not slots[at]:
            slots[at] = _free_slot(preferred_slot(specs[at].name), slots, baseline)
    return tuple(slots)


def _match_policies(before: Sequence[Spec], after: Sequence[Spec]) -> tuple[int | None, ...]:
    """Return for each new policy the index of the old policy it continues, None if new.

    Parameters
    ----------
    before : sequence of Spec
        The old policies.
    after : sequence of Spec
        The new policies in canonical form. A policy with changed settings keeps its index.
    """
    pairs = [(at, place) for place in range(len(after)) for at in range(len(before))]
    same = [(at, place) for at, place in pairs if before[at] == after[place]]
    changed = [
        (at, place)
        for at, place in pairs
        if at == place and len(after) == len(before) and before[at].name == after[at].name
    ]
    old_index: dict[int, int] = {}
    for at, place in [*sorted(same, key=lambda pair: pair[0] != pair[1]), *changed]:
        if place not in old_index and at not in old_index.values():
            old_index[place] = at
    return tuple(old_index.get(at) for at in range(len(after)))


def preferred_slot(policy: str) -> int:
    """Return the color slot of a policy if unused: from the table, or by its name."""
    return PREFERRED_SLOTS.get(policy) or crc32(policy.encode()) % SLOTS + 1


def _free_slot(preferred: int, slots: Sequence[int], baseline: int) -> int:
    """Return the slot that fewest policies share, the preferred one or the next after it.

    The slot of the baseline counts only in a tie.
    """
    drawn = [slot for at, slot in enumerate(slots) if at != baseline]
    order = [(preferred + step - 1) % SLOTS + 1 for step in range(SLOTS)]
    return min(order, key=lambda slot: (drawn.count(slot), slot in slots))
