"""Tables of 100,000 rows are read whole; how long that takes is a benchmark's business."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.jobtraces.readers.account import checked

ROWS = 100_000


def _iso(seconds: np.ndarray) -> np.ndarray:
    return np.datetime_as_string((seconds + 1_700_000_000).astype("datetime64[s]"), unit="s")


def test_native_csv() -> None:
    rng = np.random.default_rng(0)
    submit = np.sort(rng.integers(0, 10**7, ROWS))
    table = pd.DataFrame(
        {
            "job_id": np.arange(ROWS),
            "submit_time_s": submit,
            "num_gpus": rng.choice([1, 2, 8], ROWS),
            "duration_s": rng.lognormal(7, 2, ROWS),
        }
    )
    table = table.assign(
        user=rng.integers(0, 100, ROWS),
        vc=rng.integers(0, 9, ROWS),
        model="bert",
        cpus=4,
        mem_gb=16,
        start_time_s=submit + 5,
    )
    data = table.to_csv(index=False).encode()
    assert checked(data).used == ROWS


@pytest.mark.slow
def test_sacct() -> None:
    rng = np.random.default_rng(0)
    submit = np.sort(rng.integers(0, 10**7, ROWS))
    run = rng.integers(1, 10**5, ROWS)
    gpus = rng.choice([1, 2, 8], ROWS)
    lines = [
        f"{at}|gpu|u{at % 99}|{a}|{a}|{b}|{c}|{d}|600|COMPLETED|1|8|16G|billing=1,cpu=8,gres/gpu:a100={g},gres/gpu={g},mem={g}G,node=1|name"  # noqa: E501
        for at, (a, b, c, d, g) in enumerate(
            zip(_iso(submit), _iso(submit + 9), _iso(submit + 9 + run), run, gpus, strict=True)
        )
    ]
    header = "JobID|Partition|User|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|State|NNodes|NCPUS|ReqMem|AllocTRES|JobName"  # noqa: E501
    data = "\n".join([header, *lines]).encode()
    assert checked(data).used == ROWS
