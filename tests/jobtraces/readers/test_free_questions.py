"""Questions that are answered with a number: run times that workloads of Sia and Pollux lack."""

from __future__ import annotations

import pytest

from jobtraces import ReadOptions, read
from jobtraces.readers.options import OpenQuestionError
from sim.errors import ParameterError, TraceError
from tests.jobtraces.readers.account import checked

SIA = (
    b"name,time,application,num_replicas,batch_size\n"
    b"ncf-0,29,ncf,1,32768\nbert-1,107,bert,12,384\nncf-2,110.5,ncf,2,32768\nx-3,120,,1,8\n"
)


def test_run_times_that_a_workload_lacks_are_asked_of_each_application() -> None:
    with pytest.raises(OpenQuestionError) as caught:
        read(SIA, name="sia.csv", options=ReadOptions(answers={"seconds.bert": "9e3"}))
    (asked,) = caught.value.questions
    assert (asked.id, asked.free, asked.options, asked.default) == ("seconds.ncf", "number", {}, "")
    assert asked.text.startswith("How many seconds does a job of ncf run (2 in the file)?")
    assert str(caught.value).endswith("Answer with a number above 0.")
    answers = {"seconds.bert": "9e3", "seconds.ncf": "700"}
    got = checked(SIA, options=ReadOptions(answers=answers))
    assert (got.fmt, got.read, got.used, got.questions) == ("sia", 4, 3, ())
    frame = got.trace.frame
    assert frame["duration_s"].tolist() == [700, 9000, 700]
    assert frame["num_gpus"].tolist() == [1, 12, 2]
    assert frame["submit_time_s"].tolist() == [0, 78, 81.5]
    assert list(frame["model"]) == ["ncf", "bert", "ncf"]
    assert [(one.id, answer) for one, answer in got.answered] == [*answers.items()][::-1]


@pytest.mark.parametrize("answer", ["", "0", "-5", "2e", "nan", "inf", "1,000", "1_000", "9e999"])
def test_a_free_answer_is_a_number_above_0(answer: str) -> None:
    answers = {"seconds.bert": "5", "seconds.ncf": answer}
    with pytest.raises(ParameterError, match=r"seconds.ncf = .* is not a number above 0\."):
        read(SIA, options=ReadOptions(answers=answers))


def test_that_numbers_of_the_user_are_round_and_alike_says_nothing() -> None:
    rows = b"".join(b"j%d,%d,ncf,1,8\n" % (at, 60 * at) for at in range(1000))
    data = SIA.splitlines(keepends=True)[0] + rows
    got = checked(data, options=ReadOptions(answers={"seconds.ncf": "3000"}))
    assert (got.questions, got.used) == ((), 1000)
    assert not any("source cut them off there" in told for told in got.warnings)


def test_too_many_applications_are_not_asked_for_one_by_one() -> None:
    rows = b"".join(b"j%d,%d,app%d,1,8\n" % (at, at, at) for at in range(21))
    with pytest.raises(TraceError, match=r"21 values lack a number \(app0, app1, .*Add a column"):
        read(SIA.splitlines(keepends=True)[0] + rows)
