"""The worker pool of a server, shared by comparisons, sweeps, size searches and replays."""

from __future__ import annotations

from collections.abc import Callable

from sim.errors import TrainyardError
from trainyard.runs.estimate import Costs, run_seconds
from trainyard.runs.executors import Executor
from trainyard.runs.grace_period import GracePeriod
from trainyard.runs.queue import QueuedRun, RunQueue, State, Submission, Task
from trainyard.runs.run import rerun_to_store, run_to_store, scenario_key
from trainyard.store import Store
from trainyard.study.scenario import Scenario


class QueueFullError(TrainyardError):
    """Raised when too many runs are waiting."""


class WorkerPool(RunQueue):
    """The worker pool of a server, with a fair queue and a store for results.

    Parameters
    ----------
    store : Store
        Store of the results.
    executor : Executor
        Executor of the runs.
    work : callable
        Function of a worker for a comparison; tests replace it.
    most_waiting : int
        Maximum number of waiting runs; one session may have three tenths of them.

    Attributes
    ----------
    grace : GracePeriod
        Grace periods of disconnected sessions; then runs that only they wait for are cancelled.
    costs : Costs
        Measured CPU seconds of runs on this machine.
    most_each : int
        Maximum number of waiting runs of one session.
    """

    def __init__(
        self,
        store: Store,
        executor: Executor,
        *,
        work: Callable[..., str] = run_to_store,
        most_waiting: int = 1000,
    ) -> None:
        super().__init__(executor)
        self.store = store
        self._work, self._most_waiting = work, most_waiting
        self.most_each = max(most_waiting * 3 // 10, 1)
        self.costs = Costs()
        self.grace = GracePeriod()
        self.grace.on_expiry(self.stop)

    def submit(self, scenario: Scenario, watcher: str = "", *, again: bool = False) -> Submission:
        """Queue a scenario, or join an equal run, or return its stored result.

        Parameters
        ----------
        scenario : Scenario
            What to run.
        watcher : str
            Session that submits it; the queue is fair between sessions.
        again : bool
            Run it even if its result is stored.

        Raises
        ------
        TrainyardError
            If the trace is missing, or the queue or the session's share of it is full.
        """
        key = scenario_key(scenario, self.store)
        is_stored = not again and self.store.has(key)
        seconds = 0.0 if is_stored else run_seconds(scenario, self.store, self.costs)
        with self.lock:
            if is_stored and self._find_equal(key) is None:
                run = QueuedRun(Task(key, scenario, self._work, (), 0.0), 0)
                self._set_final_state(run, "done")
                return self._join(run, watcher)
            if self._find_equal(key) is None:
                self._check_room(watcher)
            args = (scenario.to_json(), self.store.address)
            work = rerun_to_store if again else self._work
            return self.put(Task(key, scenario, work, args, seconds), watcher)

    def is_going(self, scenario: Scenario) -> bool:
        """Return True if an equal run of any session waits or runs.

        Raises
        ------
        TrainyardError
            If the trace cannot be found.
        """
        key = scenario_key(scenario, self.store)
        with self.lock:
            return self._find_equal(key) is not None

    def watchers(self, source: str) -> set[str]:
        """Return the sessions that wait for runs of a trace.

        `source` is the `TraceSpec.source` of the trace.
        """
        with self.lock:
            runs = [run for run in self._runs() if run.task.scenario.trace.source == source]
            return {name for run in runs for name in run.watchers}

    def stop(self, watcher: str, source: str = "") -> None:
        """Detach a session from all its runs, or from those on the trace `source`.

        Runs without another session are cancelled.
        """
        with self.lock:
            submissions = [one for run in self._runs() for one in run.submissions]
        for one in submissions:
            if one.owner == watcher and source in ("", one.scenario.trace.source):
                self.detach(one)
        if not source:
            self._served.pop(watcher, None)

    def close(self) -> None:
        """Cancel all runs and stop the workers."""
        self.grace.close()
        super().close()

    def _check_room(self, watcher: str) -> None:
        """Raise QueueFullError if the queue, or the part of a session, is full."""
        own = sum(watcher in run.watchers for run in self._waiting)
        if len(self._waiting) >= self._most_waiting:
            raise QueueFullError(
                f"{self._most_waiting} runs are waiting already. Cancel some, or try again in a few"
                " minutes."
            )
        if own >= self.most_each:
            raise QueueFullError(
                f"{own} of your runs are waiting already, the limit per session. Choose fewer"
                " repeats or fewer policies."
            )

    def _set_final_state(self, run: QueuedRun, state: State) -> None:
        """Record the costs of a run with a stored result, then set its final state."""
        # A sweep returns numbers only, so the key tells stored results apart.
        if state == "done" and run.result == run.task.key:
            entry = self.store.get(run.task.key)
            if entry is not None:
                self.costs.record(entry, run.cpu_s)
        super()._set_final_state(run, state)
