"""The definition of one run: jobs, cluster, policy, models, seed; hashed as JSON."""

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
from sim.perf.copy_cost import FREE
from sim.perf.profiled import Profiled
from sim.result import RESULTS_VERSION
from trainyard.study import catalog, gpu_types
from trainyard.study.document import canonical_json, checked_fields, finite, number, whole_number

RIGID: Final = Spec("rigid")
EXACT: Final = Spec("exact")
NO_OVERHEADS: Final = Spec("overheads")
NO_FAULTS: Final = Spec("faults")
MADE: Final = "made:"
READY: Final = ("sample:", "store:", MADE)
"""Prefixes of sources that are not files."""
NEW_COSTS: Final = Spec.of("overheads", restart_s=60.0)
"""Overheads of new comparisons: 60 s to restart from a checkpoint, our assumption.

Documents without overheads have none.
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
"""How a load is applied: the same jobs at another pace, or more or fewer jobs in the same time."""
FORMAT: Final = 2
"""Format of written documents. Before format 2, copies of a job were free except in the profiled
model; documents of format 1 do not name their format.
"""
_LATER: Final = ("load_by", "every_user", "sample", "sample_seed", "anonymise")
"""Changes of a trace that are written only if not default, so that keys of earlier scenarios stay
valid.
"""


@dataclass(frozen=True)
class TraceSpec:
    """The jobs of a run: source, reading choices and changes.

    Parameters
    ----------
    source : str
        ``sample:NAME``, ``store:DIGEST`` (an upload in the store), ``made:NAME:key=value,...``
        (a workload of `jobtraces.generate.WORKLOADS`, defaults left out on construction) or the
        path of a file.
    fmt : str
        Key of `jobtraces.FORMATS`; "" = detected from the content.
    read : tuple of (str, value)
        Choices of `jobtraces.ReadOptions` that differ from the defaults, sorted;
        `TraceSpec.of` takes a mapping.
    from_s, to_s : float, seconds
        Jobs submitted in [from_s, to_s), counted from the first submission of the source.
    load : float, relative
        1 = as recorded.
    load_by : {"pace", "jobs"}
        "pace" compresses arrival times by the load. "jobs" multiplies the jobs in the same time:
        below 1 it drops some, above 1 it adds copies; see `trainyard.traces.sampling`.
    every_user : int
        Keep one in this many users of the window, with all their jobs; 1 = all users.
    sample : int
        Number of jobs to draw at random from the remaining ones; 0 = all.
    sample_seed : int
        Seed of drawn users, drawn jobs and copies.
    anonymise : bool
        Replace ids, users, job names, accounts, virtual clusters and partitions by numbers:
        "user 1", "user 2", ...; see `trainyard.traces.sampling.anonymize`.
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
        """Validate the values and bring them into canonical form."""
        object.__setattr__(self, "read", _canonical_choices(dict(self.read)))
        for name in ("from_s", "to_s", "load"):
            object.__setattr__(self, name, number(f"trace.{name}", getattr(self, name)))
        for name in ("every_user", "sample", "sample_seed"):
            object.__setattr__(self, name, whole_number(f"trace.{name}", getattr(self, name)))
        self._check_changes()
        if not self.thinned and self.load_by == "pace":
            object.__setattr__(self, "sample_seed", 0)
        if not self.source:
            raise ParameterError("The scenario names no trace. Choose a sample or a file.")
        if self.source.startswith(MADE):
            object.__setattr__(self, "source", MADE + canonical(self.source.removeprefix(MADE)))
        if not self.from_s < self.to_s:
            raise ParameterError(
                f"The window of the trace from {self.from_s:g} s to {self.to_s:g} s is empty. Set"
                " an end after its start."
            )
        if not 0.001 <= self.load <= 1000:
            raise ParameterError(f"trace.load = {self.load:g} is outside 0.001 to 1000.")

    def _check_changes(self) -> None:
        """Raise ParameterError if a change of the trace is invalid."""
        if self.every_user < 1:
            raise ParameterError(
                "trace.every_user = 0 keeps no user. Use 1 for all users, 2 for every second one."
            )
        if not isinstance(self.anonymise, bool):
            raise ParameterError(f"trace.anonymise = {self.anonymise} is neither true nor false.")
        if self.load_by not in LOADS_BY:
            raise ParameterError(
                f"trace.load_by = {self.load_by} is not one of {', '.join(LOADS_BY)}."
            )

    @classmethod
    def of(cls, source: str, *, fmt: str = "", read: Mapping[str, Any] | None = None) -> TraceSpec:
        """Return a trace spec from a source, a format and a mapping of reading choices."""
        return cls(source, fmt, tuple(sorted((read or {}).items())))

    @property
    def unchanged(self) -> bool:
        """Whether all jobs of the source are used as recorded."""
        return (
            self.from_s <= 0
            and math.isinf(self.to_s)
            and self.load == 1.0
            and not self.thinned
            and not self.anonymise
        )

    @property
    def thinned(self) -> bool:
        """Whether only some jobs of the window are used."""
        return self.every_user > 1 or self.sample > 0

    def changes(self) -> dict[str, Any]:
        """Return window, load and other non-default changes as plain values."""
        others = {
            name: value
            for name in _LATER
            if (value := getattr(self, name)) != getattr(TraceSpec, name)
        }
        return {"from_s": self.from_s, "to_s": finite(self.to_s), "load": self.load, **others}

    def hashed_changes(self) -> dict[str, Any]:
        """Return the changes for hashes: `load_by` counts only if the load is changed."""
        changes = (replace(self, load_by="pace") if self.load == 1.0 else self).changes()
        # The first release of this choice hid users only; its results contain job ids.
        return changes | ({"anonymise": "all names"} if self.anonymise else {})

    def choices(self) -> dict[str, Any]:
        """Return the reading choices as arguments of `jobtraces.ReadOptions`."""
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
        """Return a trace spec from its JSON, or from a source alone.

        A generated source may be a table of name and params.

        Raises
        ------
        ParameterError
            If a key is unknown or a value cannot be used.
        """
        if isinstance(data, str):
            return cls(data)
        fields = checked_fields("trace", data, cls)
        read = fields.pop("read", None) or {}
        if not isinstance(read, Mapping):
            raise ParameterError(f"trace.read = {read} is not a table of choices.")
        if fields.get("to_s", 0) is None:
            fields["to_s"] = math.inf
        if isinstance(fields.get("source"), Mapping):
            fields["source"] = MADE + canonical(Spec.from_json(fields["source"]))
        values: dict[str, Any] = {
            key: str(value) if key in ("source", "fmt") else value for key, value in fields.items()
        }
        return cls(**values, read=tuple(read.items()))


@dataclass(frozen=True)
class Scenario:
    """All inputs of one run.

    Parameters
    ----------
    trace : TraceSpec
        The jobs.
    cluster : Cluster
        The machines.
    allocator, perf, estimator : Spec
        Names and parameters; parameters equal to their defaults are left out on construction.
    overheads, faults : Spec
        Parameters of `Overheads` and `Faults`; the name is ignored.
    seed : int
        Seed of all random streams.
    horizon_s : float, seconds
        Latest end of the run; inf = no limit.
    measure : Measure
        The jobs that metrics include.
    stop : {"drained", "horizon", "measured"}
        Condition that ends the run.
    name : str
        Name for users; not part of the key.

    Raises
    ------
    ParameterError
        If a value is unknown or out of bounds.
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
        """Validate the values and bring them into canonical form."""
        object.__setattr__(self, "cluster", _normalize_cluster(self.cluster))
        for kind in catalog.KINDS:
            object.__setattr__(self, kind, catalog.canonical(kind, getattr(self, kind)))
        object.__setattr__(self, "seed", whole_number("seed", self.seed))
        object.__setattr__(self, "horizon_s", number("horizon_s", self.horizon_s))
        if self.horizon_s <= 0:
            raise ParameterError(f"horizon_s = {self.horizon_s:g} s must be above 0.")
        if self.stop not in STOPS:
            raise ParameterError(f"stop = {self.stop} is not one of {', '.join(STOPS)}.")
        if self.stop == "horizon" and math.isinf(self.horizon_s):
            raise ParameterError("stop = horizon needs a finite horizon_s.")

    def to_json(self) -> dict[str, Any]:
        """Return plain values, without parameters at their defaults."""
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
        """Return a scenario from a document of `to_json`.

        Raises
        ------
        TrainyardError
            If a key is missing or unknown, or a value cannot be used.
        """
        fields = checked_fields("scenario", catalog.current_keys(data), cls, "format")
        for key in ("trace", "cluster", "allocator"):
            if key not in fields:
                raise ParameterError(
                    f"The scenario has no '{key}'. Save it again from the page, or add it."
                )
        fields = upgrade_scenario(fields, (as_spec(fields["allocator"]),))
        values: dict[str, Any] = {
            key: _READERS[key](value) for key, value in fields.items() if key != "format"
        }
        return cls(**values)

    def canonical(self) -> str:
        """Return a JSON text that is equal for equal scenarios."""
        body = self.to_json()
        del body["format"]
        return canonical_json(catalog.former_names(body))

    def key(self, trace_digest: str) -> str:
        """Return the hash under which the result is stored.

        Parameters
        ----------
        trace_digest : str
            `Trace.digest` of the source, before window and load.

        Notes
        -----
        The hash covers all values except names and the location of the trace, the content hashes of
        trace and cluster, `RESULTS_VERSION` and the versions of policy packages.
        """
        body = self.to_json() | {"cluster": self.cluster.digest, "results_version": RESULTS_VERSION}
        if packages := allocators.packages_of(self.allocator):
            body["packages"] = packages
        body["trace"] = {"digest": trace_digest} | self.trace.hashed_changes()
        del body["name"], body["format"]
        return hashlib.blake2b(
            canonical_json(catalog.former_names(body)).encode(), digest_size=16
        ).hexdigest()


def _normalize_cluster(cluster: Cluster) -> Cluster:
    """Return a cluster with int counts and float figures, as files may mix the types.

    The same object if nothing changes.
    """

    def clean(group: NodeGroup) -> NodeGroup:
        """Return a node group with int counts and float figures."""
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


def _canonical_choices(given: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return reading choices as sorted pairs without defaults; check their names.

    A recipe gets the digest of its content.
    """
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
        # The digest detects later changes of the recipe.
        plain.setdefault("recipe_digest", digest_of(str(recipe)))
    return tuple(sorted((name, value) for name, value in plain.items() if value != _READ[name]))


def as_spec(value: Any) -> Spec:
    """Return a spec from its JSON or its text form.

    Raises
    ------
    ParameterError
        If the value is neither.
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


def upgrade_scenario(base: Mapping[str, Any], policies: Sequence[Spec]) -> dict[str, Any]:
    """Return a scenario document in the current format, with what its old format assumed.

    Former names become current ones. If one of the policies copies jobs, the cost of copies is
    that of the old format.

    Raises
    ------
    ParameterError
        If a newer version wrote it, or a policy or performance model is unknown.
    """
    version = whole_number("format", base.get("format", 1))
    if version > FORMAT:
        raise ParameterError(
            f"The scenario has format {version}, but this version reads up to {FORMAT}. Open it"
            " with a newer version."
        )
    document = catalog.current_keys(base)
    if version < FORMAT and any(
        "forks" in catalog.allocator(spec).needs.requires for spec in policies
    ):
        perf = as_spec(base.get("perf", RIGID))
        old_costs = {"efficiency": FREE["efficiency"]} if catalog.is_model(perf, Profiled) else FREE
        document["perf"] = Spec.of(perf.name, **{**old_costs, **perf.values}).to_json()
        document["format"] = FORMAT
    return document


def _params_reader(name: str) -> Any:
    """Return a function that reads overheads or faults from a table or text."""

    def read(value: Any) -> Spec:
        """Return a spec from a table of parameters, or from text such as key=value."""
        if isinstance(value, str):
            return Spec.parse(f"{name}:{value}") if value else Spec(name)
        if not isinstance(value, Mapping):
            raise ParameterError(f"{name} = {value!r:.60} is not a table of parameters.")
        return Spec.from_json({"name": name, "params": value})

    return read


def _read_cluster(value: Any) -> Cluster:
    """Return a cluster from its JSON or short description."""
    return gpu_types.parse_cluster(value) if isinstance(value, str) else gpu_types.from_json(value)


def _read_measure(value: Any) -> Measure:
    """Return the measured window from its JSON; missing ends keep their defaults."""
    fields = checked_fields("measured window", value, Measure)
    values: dict[str, Any] = {}
    for key in ("from_s", "to_s"):
        if fields.get(key) is not None:
            values[key] = number(f"measure.{key}", fields[key])
    for key in ("first_job", "last_job"):
        if fields.get(key) is not None:
            values[key] = whole_number(f"measure.{key}", fields[key])
    return Measure(**values)


_READERS: Final[Mapping[str, Any]] = {
    "trace": TraceSpec.from_json,
    "cluster": _read_cluster,
    "allocator": as_spec,
    "perf": as_spec,
    "estimator": as_spec,
    "overheads": _params_reader("overheads"),
    "faults": _params_reader("faults"),
    "seed": lambda value: whole_number("seed", value),
    "horizon_s": lambda value: math.inf if value is None else number("horizon_s", value),
    "measure": _read_measure,
    "stop": str,
    "name": str,
}
