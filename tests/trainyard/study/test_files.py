"""Texts of files as parameters: from paths on the command line, as texts in scenarios."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.errors import ParameterError
from sim.params import MAX_FILE_LENGTH, Spec, parameters
from trainyard.api import read_cluster
from trainyard.study import catalog
from trainyard.study.files import (
    decode_file,
    expand_includes,
    read_file_parameters,
    with_file_contents,
)
from trainyard.study.study import titles

CONF = "PriorityWeightAge=7\nNodeName=n1 CPUs=4\nPartitionName=all Nodes=ALL\n"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "slurm.conf"
    path.write_bytes(CONF.replace("\n", "\r\n").encode())
    return path


def test_a_path_becomes_the_text_and_choices_stay(conf: Path) -> None:
    given = Spec.of("slurm", conf=str(conf), topology="tree", weight_age=3)
    assert read_file_parameters(given) == Spec.of("slurm", conf=CONF, topology="tree", weight_age=3)
    assert read_file_parameters(Spec.of("slurm", conf=CONF)).values == {"conf": CONF}
    inside = Spec.of("partition", inner=given)
    assert read_file_parameters(inside).values["inner"].values["conf"] == CONF


def test_a_scenario_keeps_the_text(conf: Path) -> None:
    document = {"base": {"allocator": f"slurm:conf={conf}"}, "allocators": ["fifo"], "seed": 1}
    made = with_file_contents(document)
    kept = Spec.from_json(made["base"]["allocator"])
    assert catalog.instance("allocator", Spec.of("slurm", topology="tree")).topology == "tree"
    assert kept.values == {"conf": CONF}
    assert Spec.from_json(kept.to_json()) == kept == catalog.canonical("allocator", kept)
    assert (made["allocators"][0]["name"], made["seed"]) == ("fifo", 1)


def test_names_tell_files_apart_only_where_they_differ() -> None:
    one, other = (Spec.of("slurm", conf=CONF + more) for more in ("", "PriorityWeightQOS=1\n"))
    assert titles([one, Spec("fifo")])[0] == "Slurm"
    first, second = titles([one, other])
    assert first != second
    assert first.startswith("Slurm · conf file-")
    assert str(one) != str(other)


def test_what_is_no_such_file_is_one_sentence(tmp_path: Path, conf: Path) -> None:
    with pytest.raises(ParameterError, match=r"nowhere: the slurm.conf of conf cannot be read"):
        read_file_parameters(Spec.of("slurm", conf="nowhere"))
    (tmp_path / "odd").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ParameterError, match=r"it is not UTF-8 text"):
        read_file_parameters(Spec.of("slurm", conf=str(tmp_path / "odd")))
    (tmp_path / "empty").write_bytes(b"nothing")
    with pytest.raises(ParameterError, match=r"has no settings"):
        read_file_parameters(Spec.of("slurm", conf=str(tmp_path / "empty")))
    with pytest.raises(ParameterError, match=r"is not the text of a slurm.conf"):
        catalog.canonical("allocator", Spec.of("slurm", conf="slurm.conf"))
    with pytest.raises(ParameterError, match=r"neither one of flat, tree nor the text"):
        catalog.canonical("allocator", Spec.of("slurm", topology="round"))
    with pytest.raises(ParameterError, match=r"a slurm.conf may have 2,000,000"):
        catalog.canonical("allocator", Spec.of("slurm", conf="a=1\n" * MAX_FILE_LENGTH))
    with pytest.raises(ParameterError, match=r"slurm.conf: there is no partition"):
        catalog.canonical("allocator", Spec.of("slurm", conf="NodeName=n1\n"))
    info = next(one for one in parameters(type(catalog.instance("allocator", Spec("slurm")))))
    assert decode_file(conf.read_bytes(), info) == CONF


def test_the_lines_of_included_files_take_their_places(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    conf = tmp_path / "slurm.conf"
    conf.write_text("include parts/nodes.conf # ours\nPartitionName=all Nodes=ALL\n")
    # Names count from the folder of slurm.conf, in files further down, too.
    (tmp_path / "parts/nodes.conf").write_text("NodeName=n1 CPUs=4\nInclude parts/more.conf\n")
    (tmp_path / "parts/more.conf").write_bytes(b"NodeName=n[2-3] CPUs=8\r\n")
    text = read_file_parameters(Spec.of("slurm", conf=str(conf))).values["conf"]
    assert text.splitlines() == [
        "# include parts/nodes.conf # ours",
        "NodeName=n1 CPUs=4",
        "# Include parts/more.conf",
        "NodeName=n[2-3] CPUs=8",
        "PartitionName=all Nodes=ALL",
    ]
    assert [node.cpus for node in read_cluster(conf).nodes] == [4, 8, 8]
    # What is uploaded has no folder: the line stays, and is said.
    uploaded = catalog.instance("allocator", Spec.of("slurm", conf="Include x\n" + CONF))
    assert "Include" in uploaded.remarks()[0]


def test_what_cannot_be_included_is_one_sentence(tmp_path: Path) -> None:
    conf, other = tmp_path / "slurm.conf", tmp_path / "other.conf"
    conf.write_text(CONF + "Include other.conf\n")
    with pytest.raises(ParameterError, match=r"slurm.conf, line 4: .*other.conf cannot be read"):
        read_file_parameters(Spec.of("slurm", conf=str(conf)))
    other.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ParameterError, match=r"line 4: .*other.conf cannot be read \(it is not t"):
        read_cluster(conf)
    other.write_text("\n# back\nInclude slurm.conf\n")
    with pytest.raises(ParameterError, match=r"other.conf, line 3: slurm.conf includes itself"):
        read_cluster(conf)
    other.write_text("a=1\n" * (MAX_FILE_LENGTH // 7))
    with pytest.raises(ParameterError, match=r"exceed 2,000,000 characters"):
        expand_includes("Include other.conf\nInclude other.conf\n", conf, "Include")
