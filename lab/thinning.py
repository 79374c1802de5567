"""A part of a trace: one user in n, or some of the jobs, drawn by a hash of their names; and users under other names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def kept_users(users: pd.Series, every: int, seed: int) -> NDArray[np.bool_]:
    """Tell which jobs belong to one user in n.

    Parameters
    ----------
    users : Series
        User of every job; all jobs without one count as one user.
    every : int
        n; at least one user stays.
    seed : int
        Another seed draws other users.

    Notes
    -----
    The users are put in the order of a hash of their names, and of this order the first, the (n + 1)-th, ... are kept: heavy and light users alike.
    """
    codes, names = pd.factorize(users, use_na_sentinel=False)
    order = np.argsort(_hashes(("" if pd.isna(name) else str(name) for name in names), seed), kind="stable")
    kept: NDArray[np.bool_] = np.isin(codes, order[::every])
    return kept


def kept_jobs(job_ids: Iterable[object], count: int, seed: int) -> NDArray[np.bool_]:
    """Tell which jobs are in a random sample: those with the smallest hashes of their ids, so that a smaller sample is part of a larger one.

    Parameters
    ----------
    job_ids : iterable of str
        One per job.
    count : int
        Jobs to draw; all if there are no more.
    seed : int
        Another seed draws other jobs.
    """
    hashes = _hashes(map(str, job_ids), seed)
    kept = np.zeros(len(hashes), dtype=bool)
    kept[np.argsort(hashes, kind="stable")[:count]] = True
    return kept


def renamed(users: pd.Series) -> pd.Series:
    """Return the users as "user 1", "user 2", ... in the order in which they first submit; who has no name keeps none."""
    codes, _ = pd.factorize(users)
    return pd.Series([None if code < 0 else f"user {code + 1}" for code in codes], index=users.index, dtype="object")


def _hashes(names: Iterable[str], seed: int) -> NDArray[np.uint64]:
    key = str(seed).encode()
    digests = b"".join(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest() for name in names)
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)
