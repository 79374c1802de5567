"""Sample users or jobs of a trace, scale its load with copies, and hide its names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def sample_users(users: pd.Series, every: int, seed: int) -> NDArray[np.bool_]:
    """Return a mask of the jobs of one user in n, chosen by hashes of the names.

    Parameters
    ----------
    users : Series
        User of each job; jobs without a user count as one user.
    every : int
        n; at least one user stays.
    seed : int
        Random seed.

    Notes
    -----
    Users are sorted by a hash of their names, and the first, the (n + 1)-th, ... are kept, so heavy
    and light users are equally likely.
    """
    codes, names = pd.factorize(users, use_na_sentinel=False)
    order = np.argsort(
        _hash_names(("" if pd.isna(name) else str(name) for name in names), seed), kind="stable"
    )
    is_kept: NDArray[np.bool_] = np.isin(codes, order[::every])
    return is_kept


def sample_jobs(job_ids: Iterable[object], count: int, seed: int) -> NDArray[np.bool_]:
    """Return a mask of a random sample of jobs, by the smallest hashes of their ids.

    A smaller sample is part of a larger one.

    Parameters
    ----------
    job_ids : iterable of str
        One per job.
    count : int
        Number of jobs to draw.
    seed : int
        Random seed.
    """
    hashes = _hash_names(map(str, job_ids), seed)
    is_kept = np.zeros(len(hashes), dtype=bool)
    is_kept[np.argsort(hashes, kind="stable")[:count]] = True
    return is_kept


def scale_load(frame: pd.DataFrame, load: float, seed: int) -> pd.DataFrame:
    """Return the jobs scaled to a load in the same time: a part of them, or shifted copies.

    Parameters
    ----------
    frame : DataFrame
        Jobs in the native schema, in order of submission.
    load : float
        Factor on the GPU-seconds; below 1 some jobs are dropped.
    seed : int
        Random seed.

    Notes
    -----
    Jobs with a `rank` below the load stay, so a smaller load is part of a larger one. Above 1 the
    original jobs stay unchanged; each copy is shifted cyclically by a random part of the span, so
    that bursts spread and the span stays. Copies get the ids of the originals with ``+1``, ``+2``,
    ... and the same users; the last copy is partial if the load is not a whole number.
    """
    copies, rest = int(load), load - int(load)
    suffix = "+"
    while frame["job_id"].str.contains(suffix, regex=False).any():
        suffix += "+"
    parts = [frame] * min(copies, 1)
    parts += [_shifted_copy(frame, index, suffix, seed) for index in range(1, copies)]
    if rest > 0:
        is_kept = stratified_ranks(frame, seed) < rest
        parts.append((_shifted_copy(frame, copies, suffix, seed) if copies else frame)[is_kept])
    return pd.concat(parts).sort_values("submit_time_s", kind="stable")


def stratified_ranks(frame: pd.DataFrame, seed: int) -> NDArray[np.float64]:
    """Return a rank in [0, 1) per job; jobs below p have a share p of jobs and GPU-seconds.

    Notes
    -----
    Jobs are sorted by GPU-seconds; of each pair of neighbors one, by a hash of the ids, goes to the
    lower half, recursively down to single jobs. Independent draws would make the load depend on a
    few large jobs.
    """
    work = (frame["num_gpus"] * frame["duration_s"]).to_numpy(np.float64)
    hashes = _hash_names(map(str, frame["job_id"]), seed)
    order, places = np.lexsort((hashes, -work)), np.arange(len(work))
    job_ranks, group = np.zeros(len(work)), np.zeros(len(work), np.int64)
    for level in range(max(len(work) - 1, 0).bit_length()):
        # Groups are contiguous, each sorted by GPU-seconds.
        group_starts = np.maximum.accumulate(np.where(np.diff(group, prepend=-1) != 0, places, 0))
        second_of_pair = np.flatnonzero((places - group_starts) % 2)
        upper = (hashes[order] >> np.uint64(level) & np.uint64(1)).astype(np.int64)
        upper[second_of_pair] = 1 - upper[second_of_pair - 1]
        job_ranks[order] += upper * 0.5 ** (level + 1)
        group = 2 * group + upper
        by_group = np.argsort(group, kind="stable")
        order, group = order[by_group], group[by_group]
    return job_ranks


def _shifted_copy(frame: pd.DataFrame, index: int, suffix: str, seed: int) -> pd.DataFrame:
    """Return a copy of a trace with new ids, shifted cyclically by a random part of its span."""
    submit = frame["submit_time_s"]
    begin, span = submit.min(), submit.max() - submit.min()
    part = int(_hash_names([f"copy {index}"], seed)[0]) / 2.0**64
    shifted_s = begin + np.mod(submit - begin + part * span, span) if span > 0 else submit
    return move_submissions(frame.assign(job_id=frame["job_id"] + f"{suffix}{index}"), shifted_s)


def move_submissions(frame: pd.DataFrame, submit_s: pd.Series) -> pd.DataFrame:
    """Return jobs with other submissions; deadlines and earliest starts keep their distance."""
    shifted = {
        column: frame[column] - frame["submit_time_s"] + submit_s
        for column in ("deadline_s", "begin_s")
        if column in frame
    }
    return frame.assign(submit_time_s=submit_s, **shifted)


NUMBERED_COLUMNS: Final = {
    "user": "user",
    "vc": "vc",
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "reservation": "reservation",
    "name": "name",
    "array": "array",
    "constraint": "constraint",
    "gres": "gres",
}
"""Column whose texts are numbered to hide names -> word before the number."""
HIDDEN_NAME: Final = "Anonymised trace"
"""Name of an anonymized trace, because file names reveal the source."""


def anonymize(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the jobs with ids and names replaced by numbers, such as "user 1".

    Parameters
    ----------
    frame : DataFrame
        Jobs in the native schema, in order of submission.

    Notes
    -----
    Equal texts stay equal; numbers follow the first occurrence. Dependencies use the new ids; node
    lists are removed. Times, sizes, models, GPU types and outcomes stay.
    """
    ids = [str(number) for number in range(1, len(frame) + 1)]
    numbered = {
        column: _number_texts(frame[column], word)
        for column, word in NUMBERED_COLUMNS.items()
        if column in frame
    }
    if "dependency" in frame:
        number = dict(zip(frame["job_id"].astype("str"), ids, strict=True))
        numbered["dependency"] = frame["dependency"].map(
            lambda text: _ID_WORD.sub(lambda match: _new_id(match[0], number), str(text)),
            na_action="ignore",
        )
    remaining = frame.drop(columns=[column for column in ("node_list",) if column in frame])
    return remaining.assign(job_id=ids, **numbered)


_ID_WORD: Final = re.compile(r"[^\s,:?&|()]+")


def _new_id(word: str, number: Mapping[str, str]) -> str:
    """Return the new id for a word of a dependency; keywords stay, others become "unknown"."""
    # Words that are not ids are keywords such as afterok.
    return number.get(word, word if word in _DEPENDENCY_KEYWORDS else "unknown")


_DEPENDENCY_KEYWORDS: Final = (
    "after",
    "afterany",
    "afterok",
    "afternotok",
    "aftercorr",
    "singleton",
)


def _number_texts(values: pd.Series, word: str) -> pd.Series:
    """Return each text as `word` and a number, by first occurrence; missing ones stay missing."""
    texts = values.astype("object").where(values.notna() & (values.astype("str") != ""))
    codes, _ = pd.factorize(texts)
    return pd.Series(
        [None if code < 0 else f"{word} {code + 1}" for code in codes],
        index=values.index,
        dtype="object",
    )


def _hash_names(names: Iterable[str], seed: int) -> NDArray[np.uint64]:
    """Return a 64-bit hash per name, which depends on the seed."""
    key = str(seed).encode()
    digests = b"".join(
        hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
        for name in names
    )
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)
