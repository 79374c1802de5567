"""The errors this package raises on purpose: a bad input, an impossible plan, a broken contract."""


class TrainyardError(Exception):
    """Something the user can act on; its message is one sentence that says what, where and what to do."""


class TraceError(TrainyardError):
    """A trace, or one of its rows, cannot be used."""


class ClusterError(TrainyardError):
    """A cluster description cannot be used."""


class ParameterError(TrainyardError):
    """A parameter is unknown, of the wrong kind or out of its bounds."""


class InfeasiblePlan(TrainyardError):  # noqa: N818 - the name of the contract
    """An allocator asked for something that the cluster cannot give at that instant.

    Parameters
    ----------
    message : str
        Names allocator, instant, job, node, asked and free.
    snapshot : dict
        What the allocator saw: the view, reduced to plain values.
    """

    def __init__(self, message: str, snapshot: dict[str, object] | None = None) -> None:
        super().__init__(message, snapshot or {})
        self.snapshot = snapshot or {}

    def __str__(self) -> str:
        return str(self.args[0])


class SolverError(TrainyardError):
    """No solver found the optimum of a program that an allocator cannot do without."""


class ContractError(TrainyardError):
    """An allocator or a model did something that the contract forbids, apart from infeasible plans."""
