"""Fewer or more jobs than a trace has: one user in n, some of the jobs, copies of all, drawn by a
hash of their names; and jobs without names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

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
    The users are put in the order of a hash of their names, and of this order the first, the (n +
    1)-th, ... are kept: heavy and light users alike.
    """
    codes, names = pd.factorize(users, use_na_sentinel=False)
    order = np.argsort(
        _hashes(("" if pd.isna(name) else str(name) for name in names), seed), kind="stable"
    )
    kept: NDArray[np.bool_] = np.isin(codes, order[::every])
    return kept


def kept_jobs(job_ids: Iterable[object], count: int, seed: int) -> NDArray[np.bool_]:
    """Tell which jobs are in a random sample: those with the smallest hashes of their ids, so that
    a smaller sample is part of a larger one.

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


def loaded(frame: pd.DataFrame, load: float, seed: int) -> pd.DataFrame:
    """Return as many times the jobs in the same time: some of them, or whole copies and some.

    Parameters
    ----------
    frame : DataFrame
        Jobs in the native schema, in order of submission.
    load : float
        How many times the GPU-seconds; below 1 some jobs are left out.
    seed : int
        Another seed draws other jobs and moves copies elsewhere.

    Notes
    -----
    Jobs with a `rank` below the load stay, so a smaller load is a part of a larger one. Above 1 the
    trace itself stays as it is; each copy is moved by a random part of the span, and what passes
    its end goes on at its beginning, so that bursts meet other bursts and no copy adds to the span.
    Copies have the ids of the originals with ``+1``, ``+2``, ... behind them and belong to the same
    users; of the last copy only the part that the load asks for is there.
    """
    copies, rest = int(load), load - int(load)
    mark = "+"
    while frame["job_id"].str.contains(mark, regex=False).any():
        mark += "+"
    parts = [frame] * min(copies, 1)
    parts += [_copy(frame, turn, mark, seed) for turn in range(1, copies)]
    if rest > 0:
        kept = ranks(frame, seed) < rest
        parts.append((_copy(frame, copies, mark, seed) if copies else frame)[kept])
    return pd.concat(parts).sort_values("submit_time_s", kind="stable")


def ranks(frame: pd.DataFrame, seed: int) -> NDArray[np.float64]:
    """Return a number from [0, 1) for every job, such that those below any p have p of the jobs and
    of the GPU-seconds, as nearly as whole jobs can.

    Notes
    -----
    The jobs are put in the order of their GPU-seconds, and of each two neighbours one, by a hash of
    their ids, goes to the lower half; within the halves the same is done again until single jobs
    are left. Drawing each job on its own would let the load depend on the luck of a few large ones.
    """
    work = (frame["num_gpus"] * frame["duration_s"]).to_numpy(np.float64)
    drawn = _hashes(map(str, frame["job_id"]), seed)
    order, places = np.lexsort((drawn, -work)), np.arange(len(work))
    found, group = np.zeros(len(work)), np.zeros(len(work), np.int64)
    for level in range(max(len(work) - 1, 0).bit_length()):
        # Groups stand one after the other, each in the order of its GPU-seconds.
        begins = np.maximum.accumulate(np.where(np.diff(group, prepend=-1) != 0, places, 0))
        second = np.flatnonzero((places - begins) % 2)
        upper = (drawn[order] >> np.uint64(level) & np.uint64(1)).astype(np.int64)
        upper[second] = 1 - upper[second - 1]
        found[order] += upper * 0.5 ** (level + 1)
        group = 2 * group + upper
        turn = np.argsort(group, kind="stable")
        order, group = order[turn], group[turn]
    return found


def _copy(frame: pd.DataFrame, turn: int, mark: str, seed: int) -> pd.DataFrame:
    """Return a trace under other ids, moved along its span by a random part of it."""
    submit = frame["submit_time_s"]
    begin, span = submit.min(), submit.max() - submit.min()
    part = int(_hashes([f"copy {turn}"], seed)[0]) / 2.0**64
    elsewhere = begin + np.mod(submit - begin + part * span, span) if span > 0 else submit
    return moved(frame.assign(job_id=frame["job_id"] + f"{mark}{turn}"), elsewhere)


def moved(frame: pd.DataFrame, submit_s: pd.Series) -> pd.DataFrame:
    """Return jobs with other submissions, in seconds; deadlines and the times before which jobs may
    not begin keep their distance from them.
    """
    kept = {
        column: frame[column] - frame["submit_time_s"] + submit_s
        for column in ("deadline_s", "begin_s")
        if column in frame
    }
    return frame.assign(submit_time_s=submit_s, **kept)


NUMBERED: Final = {
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
"""Columns whose texts are numbered where names are to be hidden -> the word before the number."""
HIDDEN_NAME: Final = "Anonymised trace"
"""What such a trace is called: the name of a file says where it comes from."""


def anonymised(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the jobs without names: ids are numbers in order of submission, and every text that
    a site chooses becomes a word and a number, "user 1", in the order in which it first occurs.

    Parameters
    ----------
    frame : DataFrame
        Jobs in the native schema, in order of submission.

    Notes
    -----
    Equal texts stay equal. Dependencies name the new ids; the nodes on which jobs ran are left out.
    Times, sizes, models, GPU types and outcomes stay.
    """
    ids = [str(at) for at in range(1, len(frame) + 1)]
    hidden = {
        column: _numbered(frame[column], word)
        for column, word in NUMBERED.items()
        if column in frame
    }
    if "dependency" in frame:
        number = dict(zip(frame["job_id"].astype("str"), ids, strict=True))
        hidden["dependency"] = frame["dependency"].map(
            lambda text: _WORD.sub(lambda found: _renamed(found[0], number), str(text)),
            na_action="ignore",
        )
    kept = frame.drop(columns=[column for column in ("node_list",) if column in frame])
    return kept.assign(job_id=ids, **hidden)


_WORD: Final = re.compile(r"[^\s,:?&|()]+")


def _renamed(word: str, number: Mapping[str, str]) -> str:
    # What is no id says how to wait: afterok, singleton.
    return number.get(word, word if word in _WAITS else "unknown")


_WAITS: Final = ("after", "afterany", "afterok", "afternotok", "aftercorr", "singleton")


def _numbered(values: pd.Series, word: str) -> pd.Series:
    """Return texts as a word and a number, in the order in which they first occur; where there is
    none, there is none.
    """
    texts = values.astype("object").where(values.notna() & (values.astype("str") != ""))
    codes, _ = pd.factorize(texts)
    return pd.Series(
        [None if code < 0 else f"{word} {code + 1}" for code in codes],
        index=values.index,
        dtype="object",
    )


def _hashes(names: Iterable[str], seed: int) -> NDArray[np.uint64]:
    key = str(seed).encode()
    digests = b"".join(
        hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
        for name in names
    )
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)
