"""Measured profiles on the command line: by the path of a file, with what they lack said before the
run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from trainyard.cli.main import main

PROFILE = """gpu_type,model,batch_size,scale_factor,placement,iterations_per_second
v100,Net,32,1,single,10
k80,Net,32,1,single,2
"""
NETS = "job_id,submit_time_s,num_gpus,duration_s,model,batch_size\na,0,1,600,Net,32\nb,10,1,600,Odd,32\nc,20,1,600,Net,32\n"  # noqa: E501
RUN = [
    "run",
    "--trace",
    "nets.csv",
    "--cluster",
    "1x1:v100,1x1:k80",
    "--allocator",
    "fifo",
    "--perf",
]
HEADING = (
    "2 combinations of model, batch size, GPUs and GPU type are not in the profile, or do not run"
    " there: up to 1 job each."
)
LACKS = [
    f"  Odd, batch size 32, 1 GPU on {kind}: the table lacks this model (1 job)"
    for kind in ("v100", "k80")
]

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.csv").write_text(NETS, encoding="utf-8")
    (tmp_path / "own.csv").write_text(PROFILE, encoding="utf-8")

    def go(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return go


def test_a_profile_is_named_by_its_path_and_known_by_its_content(
    call: Call, tmp_path: Path
) -> None:
    one = json.loads(call(*RUN, "profiled:table=own.csv", "--without-unmeasured", "--json")[1])
    (tmp_path / "copy.csv").write_text(PROFILE, encoding="utf-8")
    same = json.loads(
        call(*RUN, "profiled", "--set", "perf.table=copy.csv", "--without-unmeasured", "--json")[1]
    )
    (tmp_path / "own.csv").write_text(PROFILE.replace(",2\n", ",5\n"), encoding="utf-8")
    other = json.loads(call(*RUN, "profiled:table=own.csv", "--without-unmeasured", "--json")[1])
    assert one["runs"][0]["key"] == same["runs"][0]["key"] != other["runs"][0]["key"]
    # 6,000 iterations each: 600 s on the V100, 3,000 or 1,200 on the K80.
    assert [document["runs"][0]["jct_mean_s"] for document in (one, other)] == pytest.approx(
        [(600 + 3000) / 2, (600 + 1200) / 2]
    )
    assert (one["trace"]["used"], one["trace"]["dropped"], one["runs"][0]["jobs"]) == (2, 1, 2)


def test_what_a_profile_lacks_is_said_before_the_run(call: Call) -> None:
    code, out, err = call(*RUN, "profiled:table=own.csv")
    assert (code, out) == (2, "")
    first, heading, *lacks, ways = err.splitlines()
    assert first.startswith(
        "No measurement exists for 1 of 3 jobs on some GPU type that they may use; the first is job"
        " b."
    )
    assert [heading, *lacks] == [HEADING, *LACKS]
    assert (
        ways
        == "No run was started. Suggestions: stand_in=MODEL (one of the profile) in --perf, which"
        " helps 1 of 1 job; --without-unmeasured, which leaves 1 job out; a profile that has these"
        " jobs."
    )
    code, out, err = call(*RUN, "profiled:table=own.csv,stand_in=Net")
    assert code == 0
    assert "have a model that was not measured; assumed: that of 'Net'" in out
    assert err.splitlines() == [HEADING, *LACKS]


@pytest.mark.parametrize(
    ("jobs", "said", "ways"),
    [
        (
            "a,0,1,600,Net,32,,\nb,10,1,600,Zero,8,,\n",
            "The work of 1 of 2 jobs is unknown",
            "No run was started. Suggestions: --without-unmeasured, which",
        ),
        (
            "a,0,1,600,,,,\n",
            "No measurement exists for 1 of 1 job",
            "stand_in=MODEL (one of the profile) in --perf, which helps 1 of 1 job; a profile",
        ),
        (
            "a,0,4,600,Net,32,,\nb,0,1,600,Net,32,,\n",
            "No measurement exists for 1 of 2 jobs",
            "stand_in=relative in --perf, which helps 1 of 1 job;",
        ),
    ],
)
def test_what_cannot_run_is_counted_with_the_ways_that_help(
    call: Call, tmp_path: Path, jobs: str, said: str, ways: str
) -> None:
    write(tmp_path, jobs)
    code, out, err = call(*RUN, "profiled:table=own.csv")
    first, *_, last = err.splitlines()
    assert (code, out) == (2, "")
    assert first.startswith(said)
    assert ways in last


def test_rows_that_were_left_out_are_told_also_where_no_run_begins(
    call: Call, tmp_path: Path
) -> None:
    write(tmp_path, "a,0,1,600,,,,\nb,0,1,-5,Net,32,,\n")
    code, _, err = call(*RUN, "profiled:table=own.csv")
    assert code == 2
    assert err.splitlines()[-3:-1] == [
        "nets.csv: 2 rows read, 1 used, 1 left out.",
        "  1 dropped: the duration is negative",
    ]


@pytest.mark.parametrize(
    ("perf", "jobs", "said"),
    [
        (
            "profiled:table=own.csv",
            "a,0,2,600,Net,32,,\n",
            "1 job can never start, because no GPU type on which they run has room",
        ),
        (
            "profiled:table=own.csv",
            "a,0,1,600,Net,32,,h200|h300\n",
            (
                "lacks GPU types that jobs request: h200 or h300 (1 job). These jobs count as"
                " impossible:"
            ),
        ),
        (
            "profiled:table=own.csv",
            "a,0,1,600,Net,32,h200,\n",
            "The profile lacks GPU types on which jobs were recorded: h200 (1 job).",
        ),
        ("rigid", "a,0,4,600,,,,\n", "1 job can never start: even the empty cluster has no room"),
        (
            "rigid",
            "a,0,1,600,,,,x9\n",
            (
                "The cluster lacks GPU types that jobs request: x9 (1 job). These jobs count as"
                " impossible:"
            ),
        ),
        (
            "rigid",
            "a,0,1,600,,,x9,\n",
            (
                "Jobs were recorded on GPU types of unknown speed: x9 (1 job). Their"
                " durations count as measured"
            ),
        ),
    ],
)
def test_what_never_starts_or_is_unknown_is_counted_before_the_run(
    call: Call, tmp_path: Path, perf: str, jobs: str, said: str
) -> None:
    write(tmp_path, jobs)
    code, _, err = call(*RUN, perf)
    assert code == 0
    assert said in err


def write(folder: Path, jobs: str) -> None:
    (folder / "nets.csv").write_text(
        f"job_id,submit_time_s,num_gpus,duration_s,model,batch_size,gpu_type,gpu_types_allowed\n{jobs}",
        encoding="utf-8",
    )
    extra = (
        "".join(f"{kind},Zero,8,1,single,0\n" for kind in ("v100", "k80"))
        + "v100,Net,32,2,consolidated,18\nk80,Net,32,2,consolidated,3\n"
    )
    (folder / "own.csv").write_text(PROFILE + extra, encoding="utf-8")


def test_a_saved_scenario_may_name_a_profile_by_its_path(call: Call, tmp_path: Path) -> None:
    saved = {
        "trace": {"source": "nets.csv"},
        "cluster": "1x1:v100,1x1:k80",
        "allocator": "fifo",
        "perf": "profiled:table=own.csv,stand_in=Net",
    }
    (tmp_path / "saved.json").write_text(json.dumps(saved), encoding="utf-8")
    code, out, _ = call("run", "--scenario", "saved.json")
    assert code == 0
    assert "assumed: that of 'Net'" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["profiled:table=nowhere.csv"],
            "nowhere.csv: the profile cannot be opened (No such file or directory).",
        ),
        (["profiled:table=nets.csv"], "nets.csv: column gpu_type is missing."),
        (
            ["profiled:table=own.csv,stand_in=Nett"],
            "profiled: stand_in: the table has no model 'Nett'. It has: Net",
        ),
        (
            ["rigid", "--without-unmeasured"],
            ("--without-unmeasured needs a performance model of measured throughputs, not rigid."),
        ),
        (
            ["profiled:table=store:00000000000000000000000000000000"],
            "The profile 000000000000 is no longer on this machine.",
        ),
    ],
)
def test_bad_input_is_code_2_and_one_sentence(
    call: Call, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRAINYARD_STORE", str(tmp_path / "store"))
    code, out, err = call(*RUN, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1
