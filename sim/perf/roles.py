"""What jobs with parameter servers are made of: as the trace says it, and what stands in where it
does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sim.contract import Floats
from sim.errors import ParameterError
from sim.params import param
from sim.perf.model import Roles
from sim.perf.profiles import plain
from sim.perf.resizable import Sizing
from sim.perf.steps import VARIANTS, ModelRow, with_rows
from sim.trace import Trace

OWNER = "parameter_server"


@dataclass(frozen=True)
class Staffing(Sizing):
    """What is assumed of jobs that do not say what they are made of."""

    staffed: ClassVar[bool] = True

    shrink: float = param(
        0.0,
        title="Smallest size",
        low=0,
        high=1,
        help=(
            "Smallest size of a job without min_gpus, as a share of the GPUs it asked for; never"
            " below one worker."
        ),
    )
    servers_per_worker: float = param(
        1.0,
        title="Parameter servers per worker",
        low=0,
        high=100,
        help=("Parameter servers per worker of a job that states none, rounded up; 0 = none."),
    )
    cores_per_worker: float = param(
        8.0,
        title="Size of a CPU worker",
        unit="cores",
        low=0.1,
        high=1024,
        help="Cores of a CPU worker whose job states neither worker_cpus nor cpus.",
    )
    cores_per_gpu_worker: float = param(
        1.0,
        title="CPU share of a GPU worker",
        unit="cores",
        low=0,
        high=1024,
        help="Cores of a GPU worker whose job states neither worker_cpus nor cpus.",
    )
    cores_per_server: float = param(
        5.0,
        title="Size of a parameter server",
        unit="cores",
        low=0.1,
        high=1024,
        help="Cores of a parameter server whose job does not state server_cpus.",
    )
    stand_in: str = param(
        "resnet50",
        title="Stand-in for unknown models",
        help=("Row of step times for jobs whose model has none; empty = such jobs are refused."),
    )
    rows: str = param(
        "",
        title="Further step times",
        help=(
            "Further or replaced rows: name, gpu or cpu, and ms per sample, per step, of exchange,"
            " of update per sample, per worker, per server, of input per sample, and the batch;"
            " e.g. mynet gpu 6 30 100 0 10 5 0 64."
        ),
    )


class RoleRequests:
    """What every job asks for and how it trains, before it is bound to machines.

    Attributes
    ----------
    gpus : array of shape (jobs,)
        GPUs of all workers; 0 = workers on CPUs.
    per_worker : array of shape (jobs,)
        GPUs of one worker.
    roles : Roles
        Replicas, and what each asks for.
    row : array of shape (jobs,)
        Place of each job's row in `table`.
    table : list of ModelRow
        The rows that occur.
    batch : array of shape (jobs,)
        Samples of a step of all workers together, as many as the job asks for.
    asynchronous : array of bool, shape (jobs,)
        Whether its workers do not wait for one another.
    """

    def __init__(self, spec: Staffing, trace: Trace) -> None:
        self._spec = spec
        self.gpus = trace.numbers("num_gpus")
        self.on_gpus = self.gpus > 0
        self.models = trace.texts("model")
        self._find_rows()
        cpus = trace.numbers("cpus")
        cpus = np.where(cpus > 0, cpus, np.nan)
        workers = trace.numbers("workers")
        self.silent_workers: NDArray[np.bool_] = np.isnan(workers)
        on_cpus = np.ceil(np.nan_to_num(cpus / spec.cores_per_worker, nan=1.0) - 1e-9)
        workers = np.where(self.silent_workers, np.where(self.on_gpus, self.gpus, on_cpus), workers)
        # GPUs that cannot be divided among the workers are one worker each.
        self.divided = self.on_gpus & (np.mod(self.gpus, workers) > 0)
        workers = np.where(self.divided, self.gpus, workers)
        self.per_worker: Floats = self.gpus / workers
        servers = trace.numbers("servers")
        self.silent_servers: NDArray[np.bool_] = np.isnan(servers)
        servers = np.where(
            self.silent_servers, np.ceil(workers * spec.servers_per_worker - 1e-9), servers
        )
        worker_cpus = _first(trace.numbers("worker_cpus"), cpus / workers)
        self.silent_cores: NDArray[np.bool_] = np.isnan(worker_cpus) | (
            np.isnan(trace.numbers("server_cpus")) & (servers > 0)
        )
        self.roles = Roles(
            workers,
            servers,
            _first(
                worker_cpus,
                np.where(self.on_gpus, spec.cores_per_gpu_worker, spec.cores_per_worker),
            ),
            _first(trace.numbers("worker_mem_gb"), trace.numbers("mem_gb", 0.0) / workers),
            trace.numbers("server_cpus", spec.cores_per_server),
            trace.numbers("server_mem_gb", 0.0),
        )
        for values in self.roles:
            values.flags.writeable = False
        stated = trace.numbers("asynchronous")
        alone = np.array([row.asynchronous for row in self.table])[self.row]
        self.asynchronous: NDArray[np.bool_] = np.where(np.isnan(stated), alone, stated > 0).astype(
            bool
        )
        usual = np.array([row.batch for row in self.table])[self.row] * np.where(
            alone, workers, 1.0
        )
        self.batch: Floats = _first(trace.numbers("batch_size"), usual)

    def check(self, trace: Trace) -> None:
        """Refuse jobs that cannot be.

        Raises
        ------
        ParameterError
            Naming the first such job.
        """
        roles, spec = self.roles, self._spec
        for bad, what in (
            (
                self.lacking,
                "has no row, and stand_in is empty. Add its model to rows, or name a stand_in",
            ),
            (
                (roles.workers % 1 > 0) | (roles.servers % 1 > 0),
                "asks for parts of workers or servers. Correct both columns to whole numbers",
            ),
            (
                ~self.on_gpus & (roles.worker_cpus <= 0),
                (
                    "asks for CPU workers of 0 cores each. Correct worker_cpus, or leave it empty"
                    f" for {spec.cores_per_worker:g} cores"
                ),
            ),
            (
                (roles.servers > 0) & (roles.server_cpus <= 0),
                (
                    "asks for parameter servers of 0 cores each. Correct server_cpus, or leave it"
                    f" empty for {spec.cores_per_server:g} cores"
                ),
            ),
        ):
            if bad.any():
                at = int(np.flatnonzero(bad)[0])
                job = f"job {trace.frame['job_id'].iloc[at]} (model {self.models[at] or 'none'})"
                raise ParameterError(f"{OWNER}: {job} {what}; the same holds for {of_jobs(bad)}.")

    def _find_rows(self) -> None:
        table = with_rows(f"{OWNER}, rows", self._spec.rows)
        found = [table.get(plain(str(name))) for name in self.models.categories]
        self.by_stand_in: NDArray[np.bool_] = np.array([row is None for row in found])[
            self.models.codes
        ]
        self.lacking: NDArray[np.bool_] = self.by_stand_in & (not self._spec.stand_in)
        stand_in = table.get(plain(self._spec.stand_in)) or next(iter(table.values()))
        self.table: list[ModelRow] = [row or stand_in for row in found]
        self.row = np.asarray(self.models.codes, np.int64)


def assumed(spec: Staffing, trace: Trace) -> tuple[str, ...]:
    """Return what is assumed of jobs whose trace does not say it, as sentences for the user."""
    asked = RoleRequests(spec, trace)
    timed = np.isnan(trace.numbers("total_steps"))
    needs = np.isnan(trace.numbers("worker_mem_need_gb")) & np.isnan(
        trace.numbers("server_mem_need_gb")
    )
    texts = (
        (
            asked.by_stand_in,
            (
                f"have a model without a row of step times; assumed: that of '{spec.stand_in}'"
                " (stand_in, rows)."
            ),
        ),
        (
            asked.silent_workers,
            (
                "do not state their workers; assumed: one for every GPU, or for every"
                f" {spec.cores_per_worker:g} cores of a CPU job."
            ),
        ),
        (
            asked.silent_servers,
            (
                f"do not state their parameter servers; assumed: {spec.servers_per_worker:g} for"
                " every worker, rounded up (servers_per_worker)."
            ),
        ),
        (
            asked.silent_cores,
            (
                "do not state the cores of workers or servers; assumed:"
                f" {spec.cores_per_gpu_worker:g} for a GPU worker, {spec.cores_per_worker:g} for a"
                f" CPU worker, {spec.cores_per_server:g} for a server."
            ),
        ),
        (
            timed,
            (
                "do not state total_steps; their samples follow from the duration and the computed"
                " speed of what they ask for."
            ),
        ),
        (
            needs,
            (
                "do not state how much memory they need (worker_mem_need_gb, server_mem_need_gb);"
                " assumed: what they ask for is enough."
            ),
        ),
        (
            asked.divided,
            (
                "have GPUs that cannot be divided among their workers; assumed: one worker for"
                " every GPU."
            ),
        ),
    )
    said = [f"{of_jobs(some)} {text}" for some, text in texts if some.any()]
    return (
        *spec.about_sizes(trace),
        *said,
        "Step times are computed from rows of coefficients, not measured (--perf).",
    )


def of_jobs(some: NDArray[np.bool_]) -> str:
    """Write how many jobs, of how many."""
    return f"{int(some.sum()):,} of {len(some):,} jobs"


def _first(*columns: Floats) -> Floats:
    found: Floats = np.array(columns[0])
    for column in columns[1:]:
        found = np.where(np.isnan(found), column, found)
    return found


def checked_stand_in(spec: Staffing) -> None:
    """Refuse a stand-in that is no row, and rows that make no sense.

    Raises
    ------
    ParameterError
        Naming what is wrong.
    """
    table = with_rows(f"{OWNER}, rows", spec.rows)
    if spec.stand_in and plain(spec.stand_in) not in table:
        names = ", ".join(name for name in table if name not in VARIANTS)
        raise ParameterError(
            f"{OWNER}: there is no row '{spec.stand_in}' to stand in. There are: {names}."
        )
