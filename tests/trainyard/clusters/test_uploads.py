"""Several files given at once."""

from __future__ import annotations

import io
import zipfile

from jobtraces import read
from tests.jobtraces.readers.test_several_tables import FILES
from trainyard.clusters.uploads import DroppedFile, classify_files, select_contents
from trainyard.study.scenario import TraceSpec
from trainyard.traces.likeness import figures_document, fit_look_alike
from trainyard.traces.sources import load_trace

JOBS = b"job_id,submit_time_s,num_gpus,duration_s\na,0,1,600\nb,60,2,1200\n"
NODES = b"gpu-1|all*|gpu:a100:4|64|515000|idle|\n"
NOTES = b"day,weather,mood\nMonday,rain,low\nTuesday,sun,high\n"


def names(found: list[DroppedFile]) -> list[tuple[str, str]]:
    """Return (kind, name) of each drop."""
    return [(drop.kind, drop.name) for drop in found]


def test_tables_of_one_trace_are_found_among_others_and_packed_as_one() -> None:
    found = classify_files({"nodes.txt": NODES, **FILES, "notes.csv": NOTES})
    name = "job.csv + task.csv + instance.csv"
    assert names(found) == [("jobs", name), ("machines", "nodes.txt"), ("refused", "notes.csv")]
    assert select_contents(found, "machines") == {"nodes.txt": NODES}
    data = select_contents(found, "jobs")[name]
    assert read(data, name=name).trace.frame.equals(read(FILES).trace.frame)


def test_two_traces_stay_apart() -> None:
    found = classify_files({"a.csv": JOBS, "b.csv": JOBS, "nodes.txt": NODES})
    assert found == [
        DroppedFile("jobs", "a.csv", JOBS),
        DroppedFile("jobs", "b.csv", JOBS),
        DroppedFile("machines", "nodes.txt", NODES),
    ]


def test_a_table_that_is_there_twice_is_not_joined() -> None:
    found = classify_files({**FILES, "again.csv": FILES["task.csv"], "jobs.csv": JOBS})
    assert select_contents(found, "jobs") == {"jobs.csv": JOBS}
    (sentence,) = select_contents(found, "refused").values()
    assert "again.csv: this file and task.csv are both the table pai_task_table" in sentence


def test_each_refused_file_has_its_own_sentence() -> None:
    found = classify_files({"paper.csv": b"%PDF-1.7", "empty.csv": b"", "a.csv": JOBS})
    assert names(found) == [("jobs", "a.csv"), ("refused", "paper.csv"), ("refused", "empty.csv")]
    for name, sentence in select_contents(found, "refused").items():
        assert sentence.startswith(f"{name}: ")


def test_a_table_of_unknown_columns_is_the_jobs_if_nothing_else_is() -> None:
    found = classify_files({"notes.csv": NOTES, "nodes.txt": NODES})
    assert names(found) == [("jobs", "notes.csv"), ("machines", "nodes.txt")]
    found = classify_files({"notes.csv": NOTES, "more.csv": NOTES})
    assert names(found) == [("refused", "notes.csv"), ("refused", "more.csv")]
    for sentence in select_contents(found, "refused").values():
        assert "drop it alone and choose its columns" in sentence


def test_of_two_lists_of_machines_none_is_used() -> None:
    found = classify_files({"a.csv": JOBS, "one.txt": NODES, "two.txt": NODES})
    assert names(found) == [("jobs", "a.csv"), ("refused", "one.txt, two.txt")]
    (sentence,) = select_contents(found, "refused").values()
    assert sentence.startswith("one.txt, two.txt: each of these describes machines")


def test_a_single_file_is_jobs_unless_it_is_machines_or_figures() -> None:
    assert classify_files({"nodes.txt": NODES}) == [DroppedFile("machines", "nodes.txt", NODES)]
    for data in (JOBS, NOTES, b"%PDF-1.7", b""):
        assert classify_files({"file": data}) == [DroppedFile("jobs", "file", data)]
    spec = fit_look_alike(load_trace(TraceSpec("sample:week")))
    assert classify_files({"like.json": figures_document(spec).encode()}) == [
        DroppedFile("figures", "like.json", spec)
    ]


def test_all_files_together_may_unpack_to_so_much_only() -> None:
    found = classify_files({"a.csv": JOBS, "b.csv": JOBS}, len(JOBS) + 1)
    assert names(found) == [("jobs", "a.csv"), ("refused", "b.csv")]


def zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made.getvalue()


def test_an_archive_of_several_kinds_is_several_files() -> None:
    found = classify_files(
        {"all.zip": zipped({"a.csv": JOBS, "x/nodes.txt": NODES, "notes.csv": NOTES})}
    )
    assert names(found) == [
        ("jobs", "all.zip: a.csv"),
        ("machines", "all.zip: nodes.txt"),
        ("refused", "all.zip: notes.csv"),
    ]


def test_an_archive_of_one_trace_stays_one_file() -> None:
    tables, single = zipped(FILES), zipped({"a.csv": JOBS})
    for data in (tables, single):
        assert classify_files({"one.zip": data}) == [DroppedFile("jobs", "one.zip", data)]
    assert classify_files({"one.zip": single, "b.csv": JOBS}) == [
        DroppedFile("jobs", "one.zip", single),
        DroppedFile("jobs", "b.csv", JOBS),
    ]
    found = classify_files({"bad.zip": tables[:99], "a.csv": JOBS})
    assert names(found) == [("jobs", "a.csv"), ("refused", "bad.zip")]
