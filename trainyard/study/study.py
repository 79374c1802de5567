"""The recipe of a comparison: one scenario under several allocators, repeated over seeds; what Run, Save and the address hold."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sim.errors import ParameterError
from sim.params import Spec
from trainyard.study import catalog
from trainyard.study.document import Document, settings, whole
from trainyard.study.scenario import Scenario, as_meant, as_spec

MAX_REPEATS: Final = 1000
_NONE: Final = "No allocator is chosen. Choose at least one."


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
    """

    base: Scenario
    allocators: tuple[Spec, ...]
    baseline: int = 0
    repeats: int = 1

    def __post_init__(self) -> None:
        """Check and bring into canonical form."""
        object.__setattr__(self, "allocators", tuple(catalog.canonical("allocator", spec) for spec in self.allocators))
        object.__setattr__(self, "baseline", whole("baseline", self.baseline))
        object.__setattr__(self, "repeats", whole("repeats", self.repeats))
        if not self.allocators:
            raise ParameterError(_NONE)
        if not 0 <= self.baseline < len(self.allocators):
            raise ParameterError(f"baseline = {self.baseline} is not a place in the list of {len(self.allocators)} allocators, counted from 0.")
        if not 1 <= self.repeats <= MAX_REPEATS:
            raise ParameterError(f"repeats = {self.repeats} is outside 1 to {MAX_REPEATS}.")
        object.__setattr__(self, "base", replace(self.base, allocator=self.allocators[self.baseline]))

    @property
    def labels(self) -> tuple[str, ...]:
        """A short name per allocator, unique in this study and safe as a file name."""
        return labels(self.allocators)

    def repeated(self, at: int) -> list[Scenario]:
        """Return the scenarios of the allocator at this place, one per seed."""
        return [replace(self.base, allocator=self.allocators[at], seed=self.base.seed + turn) for turn in range(self.repeats)]

    def scenarios(self) -> list[Scenario]:
        """Return all scenarios: first seed for every allocator, then the next seed, so that a first comparison is complete early."""
        columns = [self.repeated(at) for at in range(len(self.allocators))]
        return [column[turn] for turn in range(self.repeats) for column in columns]

    def only(self, places: Sequence[int]) -> Study:
        """Return the study with the policies at these places; the first becomes the baseline if that is not among them."""
        specs = tuple(self.allocators[at] for at in places)
        return replace(self, allocators=specs, baseline=places.index(self.baseline) if self.baseline in places else 0)

    def to_json(self) -> dict[str, Any]:
        """Return plain values: what Save writes and the address holds."""
        base = {key: value for key, value in self.base.to_json().items() if key not in ("allocator", "kind")}
        return {
            "kind": "study",
            "base": base,
            "allocators": [spec.to_json() for spec in self.allocators],
            "baseline": self.baseline,
            "repeats": self.repeats,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], also: Sequence[Spec] = ()) -> Study:
        """Read what `to_json` of a study or of a scenario wrote; a scenario becomes a study of one allocator.

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
            raise ParameterError("This is not a scenario: it holds no table of settings. Use a file that Save wrote.")
        if "allocators" not in data:
            scenario = Scenario.from_json(as_meant(data, also))
            return cls(scenario, (scenario.allocator,))
        known = settings("study", data, cls)
        chosen = known.pop("allocators")
        if not isinstance(chosen, Sequence) or isinstance(chosen, str) or not isinstance(known.get("base"), Mapping):
            raise ParameterError("A study needs 'base' (a scenario) and 'allocators' (a list). Use a file that Save wrote.")
        specs = tuple(as_spec(spec) for spec in chosen)
        if not specs:
            raise ParameterError(_NONE)
        base = Scenario.from_json({**as_meant(known.pop("base"), (*specs, *also)), "allocator": specs[0]})
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
    """Name allocators, with the parameters that are not as usual; exact repetitions get a number."""
    made: list[str] = []
    for spec in specs:
        label = _safe(" ".join([spec.name, *(f"{key}={_plain_text(value)}" for key, value in unusual(spec, specs))]))
        made.append(next(name for turn in range(1, len(specs) + 1) if (name := label if turn == 1 else f"{label} +{turn}") not in made))
    return tuple(made)


def unusual(spec: Spec, specs: Sequence[Spec]) -> list[tuple[str, Any]]:
    """Return the parameters that its name tells: those that are not at their defaults, but for what all of several allocators have in common."""
    shared = set.intersection(*(set(other.params) for other in specs)) if len(set(specs)) > 1 else set()
    return [item for item in spec.params if item not in shared]


def _plain_text(value: Any) -> str:
    return str(Spec.of("x", value=value)).removeprefix("x:value=")


def _safe(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in " ._=,()+-" else "-" for letter in text)[:100].strip(" .")
