"""Workers and parameter servers of jobs: requests in the trace, and values assumed without."""

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
    """Base of models with workers and servers: values assumed for jobs that state none."""

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
    """Requested workers and servers and training settings of every job.

    Attributes
    ----------
    gpus : array of shape (jobs,)
        GPUs of all workers; 0 = workers on CPUs.
    per_worker : array of shape (jobs,)
        GPUs of one worker.
    roles : Roles
        Replicas, and the request of each.
    row : array of shape (jobs,)
        Index of each job's row in `table`.
    table : list of ModelRow
        The rows in use.
    batch : array of shape (jobs,)
        Samples per step of all requested workers together.
    asynchronous : array of bool, shape (jobs,)
        Whether its workers do not wait for each other.
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
        worker_cpus = _first_known(trace.numbers("worker_cpus"), cpus / workers)
        self.silent_cores: NDArray[np.bool_] = np.isnan(worker_cpus) | (
            np.isnan(trace.numbers("server_cpus")) & (servers > 0)
        )
        self.roles = Roles(
            workers,
            servers,
            _first_known(
                worker_cpus,
                np.where(self.on_gpus, spec.cores_per_gpu_worker, spec.cores_per_worker),
            ),
            _first_known(trace.numbers("worker_mem_gb"), trace.numbers("mem_gb", 0.0) / workers),
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
        default_batch = np.array([row.batch for row in self.table])[self.row] * np.where(
            alone, workers, 1.0
        )
        self.batch: Floats = _first_known(trace.numbers("batch_size"), default_batch)

    def check(self, trace: Trace) -> None:
        """Refuse jobs without a row, cores, or with fractions of workers.

        Raises
        ------
        ParameterError
            If there is such a job; the message names the first.
        """
        roles, spec = self.roles, self._spec
        for is_affected, what in (
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
            if is_affected.any():
                row = int(np.flatnonzero(is_affected)[0])
                job = f"job {trace.frame['job_id'].iloc[row]} (model {self.models[row] or 'none'})"
                raise ParameterError(
                    f"{OWNER}: {job} {what}; the same holds for {share_text(is_affected)}."
                )

    def _find_rows(self) -> None:
        """Set the row of step times of each job, and the masks of jobs that need `stand_in`."""
        table = with_rows(f"{OWNER}, rows", self._spec.rows)
        rows = [table.get(plain(str(name))) for name in self.models.categories]
        self.by_stand_in: NDArray[np.bool_] = np.array([row is None for row in rows])[
            self.models.codes
        ]
        self.lacking: NDArray[np.bool_] = self.by_stand_in & (not self._spec.stand_in)
        stand_in = table.get(plain(self._spec.stand_in)) or next(iter(table.values()))
        self.table: list[ModelRow] = [row or stand_in for row in rows]
        self.row = np.asarray(self.models.codes, np.int64)


def assumption_sentences(spec: Staffing, trace: Trace) -> tuple[str, ...]:
    """Return sentences for users on values assumed because the trace lacks them."""
    requests = RoleRequests(spec, trace)
    timed = np.isnan(trace.numbers("total_steps"))
    needs = np.isnan(trace.numbers("worker_mem_need_gb")) & np.isnan(
        trace.numbers("server_mem_need_gb")
    )
    texts = (
        (
            requests.by_stand_in,
            (
                f"have a model without a row of step times; assumed: that of '{spec.stand_in}'"
                " (stand_in, rows)."
            ),
        ),
        (
            requests.silent_workers,
            (
                "do not state their workers; assumed: one for every GPU, or for every"
                f" {spec.cores_per_worker:g} cores of a CPU job."
            ),
        ),
        (
            requests.silent_servers,
            (
                f"do not state their parameter servers; assumed: {spec.servers_per_worker:g} for"
                " every worker, rounded up (servers_per_worker)."
            ),
        ),
        (
            requests.silent_cores,
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
            requests.divided,
            (
                "have GPUs that cannot be divided among their workers; assumed: one worker for"
                " every GPU."
            ),
        ),
    )
    sentences = [f"{share_text(some)} {text}" for some, text in texts if some.any()]
    return (
        *spec.about_sizes(trace),
        *sentences,
        "Step times are computed from rows of coefficients, not measured (--perf).",
    )


def share_text(some: NDArray[np.bool_]) -> str:
    """Return "n of m jobs" from a mask."""
    return f"{int(some.sum()):,} of {len(some):,} jobs"


def _first_known(*columns: Floats) -> Floats:
    """Return per job the first value that is not NaN, in the order of the columns."""
    values: Floats = np.array(columns[0])
    for column in columns[1:]:
        values = np.where(np.isnan(values), column, values)
    return values


def check_stand_in(spec: Staffing) -> None:
    """Refuse a `stand_in` without a row, and invalid rows.

    Raises
    ------
    ParameterError
        If the stand-in or a row is invalid.
    """
    table = with_rows(f"{OWNER}, rows", spec.rows)
    if spec.stand_in and plain(spec.stand_in) not in table:
        names = ", ".join(name for name in table if name not in VARIANTS)
        raise ParameterError(
            f"{OWNER}: stand_in: there is no row '{spec.stand_in}'. There are: {names}."
        )
