"""Shares of time of the greatest total: throughput, or throughput per dollar, with or without deadlines."""

from __future__ import annotations

import numpy as np

from allocators._frontier import Market
from allocators._level import fill
from allocators._linear import Program, solve
from allocators._problem import Hint, Problem, Shares, per_job, progress, tidy

_EXACT = 1e-9
NO_DEADLINES = "Not all deadlines can be met, so shares of time were computed without any."


def max_sum_throughput(problem: Problem) -> Shares:
    """Maximise the sum of iterations per second. Nothing is normalised: models of many small iterations win."""
    market = Market.of(problem)
    if not len(market.jobs):
        return Shares(np.zeros(problem.rates.shape), 0.0)
    nothing = np.zeros((len(market.jobs), len(market.types)))
    prices = problem.hint.fill if problem.hint else []
    found = fill(market, np.zeros(len(market.jobs)), market.fastest, nothing, [it for it in prices if len(it) == len(market.types)], _EXACT)
    x = tidy(problem, market.whole(found.x))
    return Shares(x, float(progress(problem, x).sum()), hint=Hint([], found.prices))


def cost(problem: Problem) -> Shares:
    """Maximise the sum of iterations per second, each divided by the hourly price of a GPU of the type: a linear stand-in for throughput per dollar."""
    return max_sum_throughput(problem._replace(rates=problem.rates / problem.prices))


def cost_slo(problem: Problem) -> Shares:
    """Do the same as `cost`, with every job fast enough for its deadline; if that cannot be, without any deadlines, and the note says so.

    Notes
    -----
    A deadline that has passed asks for nothing any more. Jobs that run nowhere have none.
    """
    values = problem.rates / problem.prices
    left, due_s = per_job(problem, problem.left), per_job(problem, problem.due_s)
    needed = np.zeros(len(left))
    np.divide(left, due_s, out=needed, where=due_s > 0)
    if not needed.any():
        return cost(problem)
    found = solve(problem, Program(values / max(float(values.max(initial=0.0)), np.finfo(float).tiny), needed))
    if found is None:
        return cost(problem)._replace(note=NO_DEADLINES)
    return Shares(found.x, float((values * found.x).sum()))
