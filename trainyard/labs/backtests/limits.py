"""Limits that a recording shows: use per user, account or QOS, and default time limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from allocators.quotas import Quota, read_quotas, write_quotas
from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.metrics.steps import accumulate
from sim.trace import Trace
from trainyard.formatting import duration, plural
from trainyard.labs.backtests.proposal import (
    LIMIT,
    MAX_NAMED,
    MIN_CASES,
    NEAR,
    SHARE,
    TIME_LIMITS,
    Proposal,
)
from trainyard.labs.backtests.record import Floats, Mask, RecordedJobs, capacity, use
from trainyard.study.check import parameter_value
from trainyard.study.scenario import Scenario

_ROUND_H: Final = (0.5, 1, 2, 4, 6, 8, 12, 24, 36, 48, 72, 96, 120, 168, 336, 720)


def propose_limits(record: RecordedJobs, trace: Trace, cluster: Cluster) -> list[Proposal]:
    """Propose limits for users, accounts and QOS that never rose above a plateau.

    At most one proposal per column, over its 50 most frequent names; it applies hard quotas unless
    a name cannot be written in their table.
    """
    total = capacity(cluster, record.unit)
    if not np.isfinite(total):
        return []
    t_all, all_used = use(record, record.start_s, record.end_s, record.started)
    proposals: list[Proposal] = []
    for column, kind in (("user", "User"), ("account", "Account"), ("qos", "QOS")):
        if not trace.has(column):
            continue
        names = trace.frame[column].astype(object).to_numpy()
        counts = Counter(name for name in names if isinstance(name, str))
        limited = []
        for name, jobs in counts.most_common(50):
            if jobs >= MIN_CASES:
                plateau = _plateau(record, names == name, (t_all, all_used), total)
                if plateau is not None:
                    limited.append((name, *plateau))
        if limited:
            plateaus = "; ".join(
                f"{name} {most:,.0f} ({100 * share:.0f} % of the time)"
                for name, most, share in limited[:MAX_NAMED]
            )
            more = f"; and {len(limited) - MAX_NAMED:,} more" if len(limited) > MAX_NAMED else ""
            most = {name: amount for name, amount, _ in limited}
            table = _quota_table(most, counts, total)
            how = (
                "" if table else " Describe the limit in the policy, if it has one, to simulate it."
            )
            proposals.append(
                Proposal(
                    f"limits-{column}",
                    f"{kind}s seem to be limited: {len(limited):,} of them never went above a"
                    " plateau"
                    f" of {record.unit}.",
                    f"At the plateau with waiting jobs and free capacity: {plateaus}{more}."
                    f"{'' if table else how}",
                    quotas=table,
                    tenant=column if table else "",
                    resource="gpus" if record.unit == "GPUs" else "cpus",
                )
            )
    return proposals


def _quota_table(most: Mapping[str, float], names: Iterable[str], total: float) -> str:
    """Return hard quotas as a table: the plateau of each name; "" if a name cannot be written.

    Names without a plateau get the whole cluster.
    """
    rows = tuple(Quota(name, most.get(name, total)) for name in names)
    table = write_quotas(rows)
    try:
        return table if read_quotas(table) == rows else ""
    except ParameterError:
        return ""


def _plateau(
    record: RecordedJobs, mine: Mask, whole: tuple[Floats, Floats], total: float
) -> tuple[float, float] | None:
    """Return (peak use, share of time at it) of one owner if it was limited; else None.

    Limited = at the peak with waiting jobs and free capacity for at least `SHARE` of the time, and
    the peak well below `total`.
    """
    chosen = record.started & mine & (record.size > 0)
    waited = chosen & (record.start_s > record.submit_s)
    if not waited.any():
        return None
    at_s = np.concatenate(
        (
            record.start_s[chosen],
            record.end_s[chosen],
            record.submit_s[waited],
            record.start_s[waited],
        )
    )
    size, ones = record.size[chosen], np.ones(int(waited.sum()))
    no_size, no_ones = np.zeros(2 * len(ones)), np.zeros(2 * len(size))
    t_s, (used, waiting) = accumulate(
        at_s,
        [np.concatenate((size, -size, no_size)), np.concatenate((no_ones, ones, -ones))],
    )
    most = float(used.max(initial=0.0))
    at = np.clip(np.searchsorted(whole[0], t_s, side="right") - 1, 0, None)
    free = total - whole[1][at]
    smallest = float(record.size[waited].min())
    lengths = np.diff(t_s, append=t_s[-1])
    is_limited = (used >= most - 1) & (waiting > 0) & (free >= max(smallest, 1.0)) & (used > 0)
    share = float(lengths[is_limited].sum() / max(lengths.sum(), 1e-9))
    return (most, share) if share >= SHARE and most < NEAR * total else None


def propose_time_limit(record: RecordedJobs, trace: Trace, scenario: Scenario) -> Proposal | None:
    """Propose a default time limit: the first round one above 99 % of the run times.

    None if the policy has no default limit, every job states a limit, or nothing would change.
    """
    usual_h = parameter_value(scenario.allocator, LIMIT)
    if usual_h is None:
        return None
    limit_s = trace.numbers("time_limit_s")
    without = record.started & ~np.isfinite(limit_s)
    if not without.any():
        return None
    run_s = (record.end_s - record.start_s)[without]
    longest_h = float(np.percentile(run_s, 99)) / 3600
    round_h = next((one for one in _ROUND_H if one >= longest_h), math.ceil(longest_h))
    if round_h == usual_h:
        return None
    given = record.started & np.isfinite(limit_s)
    ratio = (
        f" Of jobs with a limit, half use"
        f" {100 * np.median(_used_shares(record, limit_s, given)):.0f} %"
        " of it or more."
        if given.any()
        else ""
    )
    return Proposal(
        TIME_LIMITS,
        f"Jobs without a time limit have one of {round_h:g} h rather than {usual_h:g} h.",
        f"{plural(int(without.sum()), 'job')} without a limit, 99 % of which ran for"
        f" {duration(longest_h * 3600)} or less.{ratio}",
        values={LIMIT: float(round_h)},
    )


def _used_shares(record: RecordedJobs, limit_s: Floats, given: Mask) -> Floats:
    """Return the share of the time limit that each job used."""
    return np.asarray(((record.end_s - record.start_s) / limit_s)[given])
