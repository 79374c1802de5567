"""The recipe of a run: jobs, machines, allocator, models and seed; frozen, checked, written as
canonical JSON, hashed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import allocators
from jobtraces.generate import canonical
from jobtraces.readers.options import digest_of
from sim.cluster import Cluster, NodeGroup
from sim.engine.simulator import Measure
from sim.errors import ParameterError
from sim.params import Spec
from sim.perf.copies import FREE
from sim.perf.profiled import Profiled
from sim.result import RESULTS_VERSION
from trainyard.study import catalog, gpu_types
from trainyard.study.document import canonical_json, checked_fields, finite, number, whole

RIGID: Final = Spec("rigid")
EXACT: Final = Spec("exact")
NO_OVERHEADS: Final = Spec("overheads")
NO_FAULTS: Final = Spec("faults")
MADE: Final = "made:"
READY: Final = ("sample:", "store:", MADE)
"""Beginnings of sources that are no file, so that there is nothing to read."""
NEW_COSTS: Final = Spec.of("overheads", restart_s=60.0)
"""What a comparison begins with that is made anew: 60 s to come back from a checkpoint, our
assumption. Documents that name no cost mean none.
"""
STOPS: Final = ("drained", "horizon", "measured")
_READ: Final = {
    "zone": None,
    "cpu_jobs": "drop",
    "unfinished": "drop",
    "since": "submit",
    "mapping": (),
    "answers": (),
    "recipe": "",
    "recipe_digest": "",
    "time_unit": "",
    "duration_unit": "",
    "date_format": "",
}
LOADS_BY: Final = ("pace", "jobs")
"""How a load is reached: the same jobs at another pace, or fewer or more jobs in the same time."""
FORMAT: Final = 2
"""Of the documents that are written. Before format 2, which the documents do not name, copies of a
job cost nothing unless the profiled model said so.
"""
_LATER: Final = ("load_by", "every_user", "sample", "sample_seed", "anonymise")
"""Changes of a trace that are written only where they are made, so that the keys of all other
scenarios stay what they are.
"""


@dataclass(frozen=True)
class TraceSpec:
    """Which jobs: a source, how to read it, and what to change.

    Parameters
    ----------
    source : str
        ``sample:NAME``, ``store:DIGEST`` (an upload kept by the store), ``made:NAME:key=value,...``
        (a workload of `jobtraces.generate.WORKLOADS`, defaults left out on construction) or the
        path of a file.
    fmt : str
        Key of `jobtraces.FORMATS`; "" = recognised by content.
    read : tuple of (str, value)
        Choices of `jobtraces.ReadOptions` that differ from the defaults, sorted;
        `TraceSpec.of` takes a mapping.
    from_s, to_s : float, seconds
        Jobs submitted in [from_s, to_s), counted from the first submission of the source.
    load : float, relative
        1 = as recorded.
    load_by : {"pace", "jobs"}
        "pace": arrivals are compressed in time by the load. "jobs": as many times the jobs in the
        same time: below 1 some are left out, above 1 copies of all of them are laid over each
        other; see `trainyard.traces.thinning`.
    every_user : int
        Of the users with jobs in the window, one in so many is kept, with all jobs; 1 = all of
        them.
    sample : int
        So many jobs are drawn at random from those that are left; 0 = all of them.
    sample_seed : int
        Another number draws other users and other jobs, and moves copies elsewhere.
    anonymise : bool
        Ids, users, names of jobs, accounts, virtual clusters, partitions and the like become
        numbers: "user 1", "user 2", ...; see `trainyard.traces.thinning.anonymised`.
    """

    source: str = "sample:week"
    fmt: str = ""
    read: tuple[tuple[str, Any], ...] = ()
    from_s: float = 0.0
    to_s: float = math.inf
    load: float = 1.0
    load_by: str = "pace"
    every_user: int = 1
    sample: int = 0
    sample_seed: int = 0
    anonymise: bool = False

    def __post_init__(self) -> None:
        """Check and bring into canonical form."""
        object.__setattr__(self, "read", _read_options(dict(self.read)))
        for name in ("from_s", "to_s", "load"):
            object.__setattr__(self, name, number(f"trace.{name}", getattr(self, name)))
        for name in ("every_user", "sample", "sample_seed"):
            object.__setattr__(self, name, whole(f"trace.{name}", getattr(self, name)))
        self._check_changes()
        if not self.thinned and self.load_by == "pace":
            object.__setattr__(self, "sample_seed", 0)
        if not self.source:
            raise ParameterError("The scenario names no trace. Choose a sample or a file.")
        if self.source.startswith(MADE):
            object.__setattr__(self, "source", MADE + canonical(self.source.removeprefix(MADE)))
        if not self.from_s < self.to_s:
            raise ParameterError(
                f"The window of the trace from {self.from_s:g} s to {self.to_s:g} s is empty. Let"
                " it end after it begins."
            )
        if not 0.001 <= self.load <= 1000:
            raise ParameterError(f"trace.load = {self.load:g} is outside 0.001 to 1000.")

    def _check_changes(self) -> None:
        if self.every_user < 1:
            raise ParameterError(
                "trace.every_user = 0 keeps nobody. Use 1 for all users, 2 for every second one."
            )
        if not isinstance(self.anonymise, bool):
            raise ParameterError(f"trace.anonymise = {self.anonymise} is neither true nor false.")
        if self.load_by not in LOADS_BY:
            raise ParameterError(
                f"trace.load_by = {self.load_by} is not one of {', '.join(LOADS_BY)}."
            )

    @classmethod
    def of(cls, source: str, *, fmt: str = "", read: Mapping[str, Any] | None = None) -> TraceSpec:
        """Build from a mapping of reading choices."""
        return cls(source, fmt, tuple(sorted((read or {}).items())))

    @property
    def unchanged(self) -> bool:
        """Whether the whole source is taken as recorded."""
        return (
            self.from_s <= 0
            and math.isinf(self.to_s)
            and self.load == 1.0
            and not self.thinned
            and not self.anonymise
        )

    @property
    def thinned(self) -> bool:
        """Whether only some of the jobs in the window are taken."""
        return self.every_user > 1 or self.sample > 0

    def changes(self) -> dict[str, Any]:
        """Return what is done to the source, as plain values: window and load, and of the rest what
        differs from its default.
        """
        rest = {
            name: value
            for name in _LATER
            if (value := getattr(self, name)) != getattr(TraceSpec, name)
        }
        return {"from_s": self.from_s, "to_s": finite(self.to_s), "load": self.load, **rest}

    def matters(self) -> dict[str, Any]:
        """Return the changes without choices that change nothing: how a load of 1 is reached."""
        found = (replace(self, load_by="pace") if self.load == 1.0 else self).changes()
        # The first release of this choice hid users only: its results name jobs by their ids.
        return found | ({"anonymise": "all names"} if self.anonymise else {})

    def choices(self) -> dict[str, Any]:
        """Return how to read it, as `jobtraces.ReadOptions` takes it."""
        return {key: dict(value) if _READ[key] == () else value for key, value in self.read}

    def to_json(self) -> dict[str, Any]:
        """Return plain values; an open end is null."""
        return {
            "source": self.source,
            "fmt": self.fmt,
            "read": self.choices(),
            **self.changes(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str) -> TraceSpec:
        """Read what `to_json` wrote, or the source alone; a made source may be a table of name and
        params.

        Raises
        ------
        ParameterError
            If a key is unknown or a value cannot be used.
        """
        if isinstance(data, str):
            return cls(data)
        known = checked_fields("trace", data, cls)
        read = known.pop("read", None) or {}
        if not isinstance(read, Mapping):
            raise ParameterError(f"trace.read = {read} is not a table of choices.")
        if known.get("to_s", 0) is None:
            known["to_s"] = math.inf
        if isinstance(known.get("source"), Mapping):
            known["source"] = MADE + canonical(Spec.from_json(known["source"]))
        given: dict[str, Any] = {
            key: str(value) if key in ("source", "fmt") else value for key, value in known.items()
        }
        return cls(**given, read=tuple(read.items()))


@dataclass(frozen=True)
class Scenario:
    """Everything that one run depends on.

    Parameters
    ----------
    trace : TraceSpec
        The jobs.
    cluster : Cluster
        The machines, written out in full.
    allocator, perf, estimator : Spec
        Names and parameters; parameters equal to their defaults are left out on construction.
    overheads, faults : Spec
        Parameters of `Overheads` and `Faults`; the name carries no meaning.
    seed : int
        Of every random stream.
    horizon_s : float, seconds
        The run ends here at the latest; inf = when all jobs are settled.
    measure : Measure
        The jobs that count.
    stop : {"drained", "horizon", "measured"}
        When the run may end.
    name : str
        For the user; not part of the key.

    Raises
    ------
    ParameterError
        If anything is unknown or out of its bounds.
    """

    trace: TraceSpec
    cluster: Cluster
    allocator: Spec
    perf: Spec = RIGID
    estimator: Spec = EXACT
    overheads: Spec = NO_OVERHEADS
    faults: Spec = NO_FAULTS
    seed: int = 0
    horizon_s: float = math.inf
    measure: Measure = field(default_factory=Measure)
    stop: str = "drained"
    name: str = ""

    def __post_init__(self) -> None:
        """Check and bring into canonical form."""
        object.__setattr__(self, "cluster", _tidy(self.cluster))
        for kind in catalog.KINDS:
            object.__setattr__(self, kind, catalog.canonical(kind, getattr(self, kind)))
        object.__setattr__(self, "seed", whole("seed", self.seed))
        object.__setattr__(self, "horizon_s", number("horizon_s", self.horizon_s))
        if self.horizon_s <= 0:
            raise ParameterError(f"horizon_s = {self.horizon_s:g} s must be above 0.")
        if self.stop not in STOPS:
            raise ParameterError(f"stop = {self.stop} is not one of {', '.join(STOPS)}.")
        if self.stop == "horizon" and math.isinf(self.horizon_s):
            raise ParameterError("stop = horizon needs a finite horizon_s.")

    def to_json(self) -> dict[str, Any]:
        """Return plain values, complete but for parameters that have their defaults."""
        return {
            "kind": "scenario",
            "format": FORMAT,
            "name": self.name,
            "trace": self.trace.to_json(),
            "cluster": self.cluster.to_json(),
            "allocator": self.allocator.to_json(),
            "perf": self.perf.to_json(),
            "estimator": self.estimator.to_json(),
            "overheads": self.overheads.to_json()["params"],
            "faults": self.faults.to_json()["params"],
            "seed": self.seed,
            "horizon_s": finite(self.horizon_s),
            "measure": {
                item.name: finite(getattr(self.measure, item.name)) for item in fields(self.measure)
            },
            "stop": self.stop,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Scenario:
        """Read what `to_json` wrote.

        Raises
        ------
        TrainyardError
            If a key is missing or unknown, or a value cannot be used.
        """
        known = checked_fields("scenario", catalog.renamed_keys(data), cls, "format")
        for key in ("trace", "cluster", "allocator"):
            if key not in known:
                raise ParameterError(
                    f"The scenario has no '{key}'. Save it again from the page, or add it."
                )
        known = as_meant(known, (as_spec(known["allocator"]),))
        made: dict[str, Any] = {
            key: _READERS[key](value) for key, value in known.items() if key != "format"
        }
        return cls(**made)

    def canonical(self) -> str:
        """Return the JSON text that is the same for equal scenarios, byte for byte."""
        body = self.to_json()
        del body["format"]
        return canonical_json(catalog.first_written(body))

    def key(self, trace_digest: str) -> str:
        """Return the hash under which the result is stored.

        Parameters
        ----------
        trace_digest : str
            `Trace.digest` of the source, before window and load.

        Notes
        -----
        Made of everything but names and the place of the trace, with the content hashes of trace
        and cluster, `RESULTS_VERSION` and the versions of packages that bring policies.
        """
        body = self.to_json() | {"cluster": self.cluster.digest, "results_version": RESULTS_VERSION}
        if packages := allocators.packages_of(self.allocator):
            body["packages"] = packages
        body["trace"] = {"digest": trace_digest} | self.trace.matters()
        del body["name"], body["format"]
        return hashlib.blake2b(
            canonical_json(catalog.first_written(body)).encode(), digest_size=16
        ).hexdigest()


def _tidy(cluster: Cluster) -> Cluster:
    """Return the cluster with whole counts and float figures, whatever a file or a table editor
    made of them.
    """

    def clean(group: NodeGroup) -> NodeGroup:
        price = None if group.price_per_hour is None else float(group.price_per_hour)
        return replace(
            group,
            count=int(group.count),
            gpus=int(group.gpus),
            cpus=float(group.cpus),
            mem_gb=float(group.mem_gb),
            rack_size=int(group.rack_size),
            partitions=tuple(group.partitions),
            price_per_hour=price,
        )

    types = tuple(
        replace(kind, speed=float(kind.speed), price_per_gpu_hour=float(kind.price_per_gpu_hour))
        for kind in cluster.types
    )
    tidied = replace(cluster, groups=tuple(clean(group) for group in cluster.groups), types=types)
    return (
        cluster
        if tidied.to_json() == cluster.to_json()
        and canonical_json(tidied.to_json()) == canonical_json(cluster.to_json())
        else tidied
    )


def _read_options(given: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    for name in given:
        if name not in _READ:
            raise ParameterError(
                f"Reading a trace has no choice '{name}'. It has: {', '.join(_READ)}."
            )
    plain = {
        name: tuple(sorted(dict(value).items())) if _READ[name] == () else value
        for name, value in given.items()
    }
    if recipe := plain.get("recipe"):
        # The text says all, and its digest whether it still is what was read by.
        plain.setdefault("recipe_digest", digest_of(str(recipe)))
    return tuple(sorted((name, value) for name, value in plain.items() if value != _READ[name]))


def as_spec(value: Any) -> Spec:
    """Return a spec from its JSON or its text form.

    Raises
    ------
    ParameterError
        If it is neither.
    """
    if isinstance(value, Spec):
        return value
    if not isinstance(value, str) and not (
        isinstance(value, Mapping)
        and "name" in value
        and isinstance(value.get("params", {}), Mapping)
    ):
        raise ParameterError(
            f"{value!r:.80} is neither a name nor a table with 'name' and 'params'."
        )
    return Spec.from_json(value)


def as_meant(base: Mapping[str, Any], policies: Sequence[Spec]) -> dict[str, Any]:
    """Return a scenario as JSON with what its format left unsaid: under policies that fork, the
    price of copies as it was then.

    Raises
    ------
    ParameterError
        If a later version wrote it, or a policy or the performance model is unknown.
    """
    written = whole("format", base.get("format", 1))
    if written > FORMAT:
        raise ParameterError(
            f"The scenario has format {written}, but this version reads up to {FORMAT}. Open it"
            " with a newer version."
        )
    made = catalog.renamed_keys(base)
    if written < FORMAT and any(
        "forks" in catalog.allocator(spec).needs.requires for spec in policies
    ):
        perf = as_spec(base.get("perf", RIGID))
        known = {"efficiency": FREE["efficiency"]} if catalog.is_model(perf, Profiled) else FREE
        made["perf"] = Spec.of(perf.name, **{**known, **perf.values}).to_json()
        made["format"] = FORMAT
    return made


def _params(name: str) -> Any:
    def read(value: Any) -> Spec:
        if isinstance(value, str):
            return Spec.parse(f"{name}:{value}") if value else Spec(name)
        if not isinstance(value, Mapping):
            raise ParameterError(f"{name} = {value!r:.60} is not a table of parameters.")
        return Spec.from_json({"name": name, "params": value})

    return read


def _cluster(value: Any) -> Cluster:
    return gpu_types.parse_cluster(value) if isinstance(value, str) else gpu_types.from_json(value)


def _measure(value: Any) -> Measure:
    known = checked_fields("measured window", value, Measure)
    made: dict[str, Any] = {}
    for key in ("from_s", "to_s"):
        if known.get(key) is not None:
            made[key] = number(f"measure.{key}", known[key])
    for key in ("first_job", "last_job"):
        if known.get(key) is not None:
            made[key] = whole(f"measure.{key}", known[key])
    return Measure(**made)


_READERS: Final[Mapping[str, Any]] = {
    "trace": TraceSpec.from_json,
    "cluster": _cluster,
    "allocator": as_spec,
    "perf": as_spec,
    "estimator": as_spec,
    "overheads": _params("overheads"),
    "faults": _params("faults"),
    "seed": lambda value: whole("seed", value),
    "horizon_s": lambda value: math.inf if value is None else number("horizon_s", value),
    "measure": _measure,
    "stop": str,
    "name": str,
}
