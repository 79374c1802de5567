"""Several files given at once."""

from __future__ import annotations

import io
import zipfile

from jobtraces import read
from tests.jobtraces.readers.test_several_tables import FILES
from trainyard.clusters.drops import packed, sort_out, unfolded

JOBS = b"job_id,submit_time_s,num_gpus,duration_s\na,0,1,600\nb,60,2,1200\n"
NODES = b"gpu-1|all*|gpu:a100:4|64|515000|idle|\n"
NOTES = b"day,weather,mood\nMonday,rain,low\nTuesday,sun,high\n"


def test_tables_of_one_trace_are_found_among_others_and_packed_as_one() -> None:
    given = {"nodes.txt": NODES, **FILES, "notes.csv": NOTES}
    found = sort_out(given)
    assert found.traces == (("job.csv", "task.csv", "instance.csv"),)
    assert found.machines == ("nodes.txt",)
    assert [sentence.partition(":")[0] for sentence in found.refused] == ["notes.csv"]
    name, data = packed(found.traces[0], given)
    assert name == "job.csv + task.csv + instance.csv"
    assert read(data, name=name).trace.frame.equals(read(FILES).trace.frame)


def test_two_traces_stay_apart() -> None:
    found = sort_out({"a.csv": JOBS, "b.csv": JOBS, "nodes.txt": NODES})
    assert found == ((("a.csv",), ("b.csv",)), ("nodes.txt",), ())


def test_a_table_that_is_there_twice_is_not_joined() -> None:
    found = sort_out({**FILES, "again.csv": FILES["task.csv"], "jobs.csv": JOBS})
    assert found.traces == (("jobs.csv",),)
    assert len(found.refused) == 1
    assert "again.csv: this and task.csv are both the table pai_task_table" in found.refused[0]


def test_each_refused_file_has_its_own_sentence() -> None:
    found = sort_out({"paper.csv": b"%PDF-1.7", "empty.csv": b"", "a.csv": JOBS})
    assert found.traces == (("a.csv",),)
    assert [sentence.partition(":")[0] for sentence in found.refused] == ["paper.csv", "empty.csv"]


def test_a_table_of_unknown_columns_is_the_jobs_if_nothing_else_is() -> None:
    assert sort_out({"notes.csv": NOTES, "nodes.txt": NODES}).traces == (("notes.csv",),)
    found = sort_out({"notes.csv": NOTES, "more.csv": NOTES})
    assert found.traces == ()
    assert all("give it alone and say what its columns mean" in one for one in found.refused)


def test_all_files_together_may_unpack_to_so_much_only() -> None:
    found = sort_out({"a.csv": JOBS, "b.csv": JOBS}, len(JOBS) + 1)
    assert found.traces == (("a.csv",),)
    assert found.refused[0].startswith("b.csv")


def zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made.getvalue()


def test_an_archive_of_several_kinds_is_several_files() -> None:
    given = {"all.zip": zipped({"a.csv": JOBS, "x/nodes.txt": NODES, "notes.csv": NOTES})}
    found = sort_out(unfolded(given))
    assert found.traces == (("all.zip: a.csv",),)
    assert found.machines == ("all.zip: nodes.txt",)
    assert [one.partition(": this")[0] for one in found.refused] == ["all.zip: notes.csv"]


def test_an_archive_of_one_trace_stays_one_file() -> None:
    tables, single = zipped(FILES), zipped({"a.csv": JOBS})
    given = {"pai.zip": tables, "one.zip": single, "bad.zip": tables[:99], "a.csv": JOBS}
    assert unfolded(given) == given
