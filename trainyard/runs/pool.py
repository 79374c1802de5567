"""The runs of a server: comparisons go to the store, and what is stored is not run again; sweeps,
plans and replays share its workers.
"""

from __future__ import annotations

from collections.abc import Callable

from sim.errors import TrainyardError
from trainyard.runs.disconnects import GracePeriod
from trainyard.runs.estimate import Costs, run_seconds
from trainyard.runs.executors import Executor
from trainyard.runs.queue import QueuedRun, RunQueue, State, Submission, Task
from trainyard.runs.run import key_of, rerun_to_store, run_to_store
from trainyard.store import Store
from trainyard.study.scenario import Scenario


class QueueFullError(TrainyardError):
    """Too many runs are waiting."""


class WorkerPool(RunQueue):
    """The workers of a server.

    Parameters
    ----------
    store : Store
        Where results go.
    executor : Executor
        Where runs happen.
    work : callable
        What a worker does for a comparison; `run_to_store` but in tests.
    most_waiting : int
        Runs that may wait at once; three tenths of them for one session, so that none fills the
        queue alone.

    Attributes
    ----------
    grace : GracePeriod
        Sessions that have gone: what only they wait for is cancelled after a while.
    costs : Costs
        CPU seconds of runs on this machine.
    most_each : int
        Runs of one session that may wait.
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
        """Queue a scenario; join the run if an equal one is under way; be done at once if its
        result is stored.

        Parameters
        ----------
        scenario : Scenario
            What to run.
        watcher : str
            The session that submits it; the queue is fair between sessions.
        again : bool
            Run it even if its result is stored.

        Raises
        ------
        TrainyardError
            If the trace cannot be found, or the queue is full, or the session's share of it.
        """
        key = key_of(scenario, self.store)
        is_stored = not again and self.store.has(key)
        seconds = 0.0 if is_stored else run_seconds(scenario, self.store, self.costs)
        with self.lock:
            if is_stored and self._equal(key) is None:
                run = QueuedRun(Task(key, scenario, self._work, (), 0.0), 0)
                self._settle(run, "done")
                return self._join(run, watcher)
            if self._equal(key) is None:
                self._check_room(watcher)
            args = (scenario.to_json(), self.store.address)
            work = rerun_to_store if again else self._work
            return self.put(Task(key, scenario, work, args, seconds), watcher)

    def is_going(self, scenario: Scenario) -> bool:
        """Tell whether an equal run of any session waits or goes on.

        Raises
        ------
        TrainyardError
            If the trace cannot be found.
        """
        key = key_of(scenario, self.store)
        with self.lock:
            return self._equal(key) is not None

    def watchers(self, source: str) -> set[str]:
        """Return the sessions that wait for runs of a trace; `source` is that of its
        `TraceSpec`.
        """
        with self.lock:
            runs = [run for run in self._runs() if run.task.scenario.trace.source == source]
            return {name for run in runs for name in run.watchers}

    def stop(self, watcher: str, source: str = "") -> None:
        """Let a session no longer wait for any of its comparisons; with a source, for those of this
        trace only.
        """
        with self.lock:
            submissions = [one for run in self._runs() for one in run.submissions]
        for one in submissions:
            if one.whose == watcher and source in ("", one.scenario.trace.source):
                self.detach(one)
        if not source:
            self._served.pop(watcher, None)

    def close(self) -> None:
        """End all runs as cancelled, and the workers."""
        self.grace.close()
        super().close()

    def _check_room(self, watcher: str) -> None:
        own = sum(watcher in run.watchers for run in self._waiting)
        if len(self._waiting) >= self._most_waiting:
            raise QueueFullError(
                f"{self._most_waiting} runs are waiting already. Cancel some, or try again in a few"
                " minutes."
            )
        if own >= self.most_each:
            raise QueueFullError(
                f"{own} of your runs are waiting already, and others want their turn. Choose fewer"
                " repeats or fewer policies."
            )

    def _settle(self, run: QueuedRun, state: State) -> None:
        # Of a sweep only numbers come back.
        if state == "done" and run.result == run.task.key:
            entry = self.store.get(run.task.key)
            if entry is not None:
                self.costs.note(entry, run.cpu_s)
        super()._settle(run, state)
