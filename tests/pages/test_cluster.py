from __future__ import annotations

import re
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from sim.cluster import KNOWN_TYPES, Cluster, GpuType
from tests.pages.conftest import Open, sound, study_of, texts
from trainyard.clusters import machines
from ui import state


def edit(app: AppTest, table: str, changes: dict[str, Any]) -> AppTest:
    mine = app.session_state[state._SESSION]
    names = "+".join(kind.name for kind in mine.study.base.cluster.types)
    key = {"groups": f"groups/{mine.form_version}", "types": f"types/{names}/{mine.form_version}"}[
        table
    ]
    app.session_state[key] = {"edited_rows": {}, "added_rows": [], "deleted_rows": []} | changes
    return app.run()


def _number(app: AppTest, label: str) -> Any:
    return next(item for item in app.number_input if item.label == label)


def cluster(app: AppTest) -> Any:
    return study_of(app).base.cluster


def test_visiting_changes_nothing(visit: Open) -> None:
    app = visit()
    before = app.query_params["s"]
    app.switch_page("pages/cluster.py").run()
    app.run()
    assert app.query_params["s"] == before


def test_two_edits_after_each_other_both_count(visit: Open) -> None:
    app = visit("cluster")
    edit(app, "groups", {"edited_rows": {0: {"nodes": 6}}})
    sound(app)
    assert [group.count for group in cluster(app).groups] == [6, 4]
    edit(
        app,
        "groups",
        {"edited_rows": {0: {"nodes": 6}, 1: {"rack_size": 2, "partitions": "prod, test"}}},
    )
    sound(app)
    assert [group.count for group in cluster(app).groups] == [6, 4]
    assert cluster(app).groups[1].rack_size == 2
    assert cluster(app).groups[1].partitions == ("prod", "test")
    assert app.metric[1].value == "80"


def test_speed_and_price_of_a_type_are_edited(visit: Open) -> None:
    app = visit("cluster")
    edit(app, "types", {"edited_rows": {0: {"speed": 3.0, "price_per_gpu_hour": 1.0}}})
    sound(app)
    kind = cluster(app).types[0]
    assert (kind.speed, kind.price_per_gpu_hour) == (3.0, 1.0)


def test_an_impossible_cell_is_one_sentence_and_the_cluster_stays(visit: Open) -> None:
    app = visit("cluster")
    edit(app, "groups", {"edited_rows": {0: {"nodes": -2}}})
    assert len(app.error) == 1
    assert "Row 1" in app.error[0].value
    assert [group.count for group in cluster(app).groups] == [4, 4]


def test_the_short_description_replaces_the_tables(visit: Open) -> None:
    app = visit("cluster")
    app.text_input(key="cluster_spec").set_value("2x8:h100,1x0:cpu").run()
    app.button(key="use_spec").click().run()
    sound(app)
    assert [(group.count, group.gpus) for group in cluster(app).groups] == [(2, 8), (1, 0)]


@pytest.mark.parametrize("text", ["16x8", "2xx8:v100", "-1x8:v100"])
def test_a_wrong_short_description_is_one_sentence(visit: Open, text: str) -> None:
    app = visit("cluster")
    before = app.query_params["s"]
    app.text_input(key="cluster_spec").set_value(text).run()
    app.button(key="use_spec").click().run()
    assert len(app.error) == 1
    assert app.query_params["s"] == before


def test_jobs_that_fit_nowhere_are_counted(visit: Open) -> None:
    app = visit("cluster")
    app.text_input(key="cluster_spec").set_value("1x4:v100").run()
    app.button(key="use_spec").click().run()
    sound(app)
    assert any("can never start" in warning.value for warning in app.warning)


def test_models_are_forms_of_their_parameters(visit: Open) -> None:
    app = visit("cluster")
    _number(app, "Pause at a restart (s)").set_value(45.0).run()
    sound(app)
    assert study_of(app).base.overheads.values == {"restart_s": 45.0}
    assert "Changed" not in texts(app)


def test_measured_times_of_checkpoints_fill_the_form_and_keep_the_rest(visit: Open) -> None:
    app = visit("cluster")
    next(
        item for item in app.number_input if item.label == "Pause at the first start (s)"
    ).set_value(7.0).run()
    next(item for item in app.selectbox if item.label == "Fill in measured times").set_value(
        "ddp-flash"
    ).run()
    sound(app)
    assert study_of(app).base.overheads.values == {
        "start_s": 7.0,
        "checkpoint_s": 2.2,
        "restart_s": 3.7,
    }
    assert _number(app, "Pause at a restart (s)").value == 3.7
    assert "GPT-2" in texts(app)


def test_presets_load(visit: Open) -> None:
    app = visit("cluster")
    app.button(key="preset/H100").click().run()
    sound(app)
    assert cluster(app).gpus == 128
    app.button(key="preset/Each virtual cluster at its recorded peak").click().run()
    sound(app)
    assert cluster(app).name.startswith("Sized from ")


def test_a_vast_cluster_is_refused_before_it_fills_the_memory(visit: Open) -> None:
    app = visit("cluster")
    edit(app, "groups", {"edited_rows": {0: {"nodes": 1_000_000_000}}})
    assert "100,000 is the most" in app.error[0].value
    assert [group.count for group in cluster(app).groups] == [4, 4]
    app.text_input(key="cluster_spec").set_value("1000000000x8:v100").run()
    app.button(key="use_spec").click().run()
    assert any("100,000 is the most" in error.value for error in app.error)
    assert cluster(app).gpus == 64


def test_a_table_of_virtual_clusters_is_uploaded(visit: Open) -> None:
    app = visit("cluster")
    app.file_uploader(key="cluster_file").set_value(
        ("vc.csv", b"vc,node num\nalpha,2\nbeta,1\n", "text/csv")
    ).run()
    sound(app)
    assert [(group.partitions, group.count) for group in cluster(app).groups] == [
        (("alpha",), 2),
        (("beta",), 1),
    ]
    asked = next(one for one in app.button_group if "How many GPUs does a node have?" in one.label)
    assert asked.value == "8"
    asked.set_value("4").run()
    sound(app)
    assert [group.gpus for group in cluster(app).groups] == [4, 4]
    app.text_input(key="cluster_spec").set_value("1x4:v100").run()
    app.button(key="use_spec").click().run()
    assert not [one for one in app.button_group if "How many GPUs" in one.label]


def test_a_mistyped_line_is_one_sentence_and_the_page_stays(visit: Open) -> None:
    app = visit("cluster")
    app.text_input(key="cluster_spec").set_value("abc").run()
    app.button(key="use_spec").click().run()
    sound(app)
    assert len(app.error) == 1
    assert "abc" in app.error[0].value
    assert "Restarts and failures" in [header.value for header in app.subheader]
    assert "Nodes" in [metric.label for metric in app.metric]


def test_a_wrong_cluster_file_is_one_sentence_and_the_cluster_stays(visit: Open) -> None:
    app = visit("cluster")
    before = cluster(app)
    app.file_uploader(key="cluster_file").set_value(("vc.json", b"{", "application/json")).run()
    assert len(app.error) == 1
    assert cluster(app) == before


def test_jobs_that_can_never_start_are_left_out_with_a_click(visit: Open) -> None:
    app = visit("cluster")
    app.text_input(key="cluster_spec").set_value("1x4:v100").run()
    app.button(key="use_spec").click().run()
    before = next(warning.value for warning in app.warning if "can never start" in warning.value)
    app.button(key="leave_out").click().run()
    sound(app)
    assert "are left out. Trace counts them" in texts(app)
    assert not [warning for warning in app.warning if "can never start" in warning.value]
    assert "fit on the empty cluster" in texts(app)
    app.switch_page("pages/trace.py").run()
    sound(app)
    left_out = re.search(r"used \+ (\d+) left out = 1,200 read", texts(app))
    assert left_out is not None
    assert before.startswith(f"{left_out[1]} job")


SLURM = (
    b"NodeName=gpu[001-016] CPUs=64 RealMemory=524288 Gres=gpu:a100:4(S:0-1)\nNodeName=odd1"
    b" Gres=gpu:x9:2\nPartitionName=all Nodes=ALL\n"
)


def test_a_slurm_configuration_becomes_the_cluster_and_says_what_it_assumed(visit: Open) -> None:
    app = visit("cluster")
    before = cluster(app)
    app.file_uploader(key="cluster_file").set_value(("slurm.conf", SLURM, "text/plain")).run()
    sound(app)
    assert cluster(app) == before
    assert "No speed known for ‘x9’. Enter its speed and price." in texts(app)
    app.number_input(key="pending/x9/speed").set_value(1.5).run()
    app.button(key="use/x9").click().run()
    sound(app)
    assert [(group.count, group.gpus, group.gpu_type) for group in cluster(app).groups] == [
        (16, 4, "a100"),
        (1, 2, "x9"),
    ]
    assert "Read 17 nodes with 66 GPUs from slurm.conf." in texts(app)
    assert cluster(app).types == (KNOWN_TYPES["a100"], GpuType("x9", 1.5, 0.0))
    assert "No price for X9, so no cost is shown." in texts(app)
    assert "Price per hour" not in [metric.label for metric in app.metric]


@pytest.mark.parametrize(
    "content",
    [
        b"NodeName=gpu[001-",
        b"",
        b"%PDF-1.4",
        b"just text\n",
        b"\x00\x01\x02",
        b"node,gpus,gpu_type\na,many,v100\n",
    ],
)
def test_a_wrong_file_is_exactly_one_sentence(visit: Open, content: bytes) -> None:
    app = visit("cluster")
    before = cluster(app)
    app.file_uploader(key="cluster_file").set_value(("slurm.conf", content, "text/plain")).run()
    sound(app)
    assert len(app.error) == 1
    assert "slurm.conf" in app.error[0].value
    assert cluster(app) == before


def test_prices_are_for_comparison_until_somebody_enters_them(visit: Open) -> None:
    app = visit("cluster")
    assert "for comparison only" in texts(app)
    assert "SkyPilot" in texts(app)
    count = len(cluster(app).types)
    edit(app, "types", {"edited_rows": {row: {"price_per_gpu_hour": 1.23} for row in range(count)}})
    sound(app)
    assert "for comparison only" not in texts(app)
    assert texts(app).count("1.23 per hour (own)") == count


def test_a_cluster_of_cpu_nodes_alone(visit: Open) -> None:
    app = visit("cluster")
    app.text_input(key="cluster_spec").set_value("3x0:cpu/64c/256g").run()
    app.button(key="use_spec").click().run()
    sound(app)
    facts = {item.label: item.value for item in app.metric}
    assert facts["CPU cores"] == "192"
    assert "Price per hour" not in facts
    assert not [frame for frame in app.dataframe if "speed" in frame.value.columns]
    assert not [button for button in app.button if button.key == "leave_out"]


def test_what_runs_cost_and_what_fails_is_said_above_the_forms(visit: Open) -> None:
    app = visit("cluster")
    assert "Restart cost: pause at a restart 60 s. Failures: not simulated." in texts(app)
    _number(app, "Pause at a restart (s)").set_value(45.0).run()
    sound(app)
    assert "Restart cost: pause at a restart 45 s. Failures: not simulated." in texts(app)


def test_a_rack_of_all_nodes_is_left_empty_and_list_prices_are_told(visit: Open) -> None:
    app = visit("cluster")
    assert "List prices of A100, V100, for comparison only." in texts(app)
    assert not machines.group_table(Cluster.parse("4x8:v100"))["rack_size"].notna().any()


def test_an_unknown_gpu_type_never_yields_a_number(visit: Open) -> None:
    app = visit("cluster")
    before = app.query_params["s"]
    app.text_input(key="cluster_spec").set_value("2x8:h100x").run()
    app.button(key="use_spec").click().run()
    sound(app)
    said = "No speed known for ‘h100x’. Nearest: H100. Enter speed and price, or use H100."
    assert said in texts(app)
    assert app.query_params["s"] == before
    assert app.button(key="use/h100x").disabled
    app.button(key="drop_cluster").click().run()
    assert said not in texts(app)
    edit(app, "groups", {"edited_rows": {0: {"gpu_type": "h100x"}}})
    assert [error.value for error in app.error] == [said]
    assert app.query_params["s"] == before


def test_a_type_takes_the_figures_of_the_nearest_or_those_that_are_entered(visit: Open) -> None:
    app = visit("cluster")
    app.text_input(key="cluster_spec").set_value("133x8:h100x,2x4:b300").run()
    app.button(key="use_spec").click().run()
    app.button(key="like/h100x").click().run()
    app.number_input(key="pending/b300/speed").set_value(9.0)
    app.number_input(key="pending/b300/price").set_value(8.5).run()
    app.button(key="use/b300").click().run()
    sound(app)
    assert cluster(app).types == (KNOWN_TYPES["h100"], GpuType("b300", 9.0, 8.5))
    assert [group.gpu_type for group in cluster(app).groups] == ["h100", "b300"]


def test_a_type_is_described_and_then_chosen_for_nodes(visit: Open) -> None:
    app = visit("cluster")
    app.text_input(key="own_type").set_value("RTX6000").run()
    assert app.button(key="add_type").disabled
    app.number_input(key="own_type/speed").set_value(1.25).run()
    app.button(key="add_type").click().run()
    edit(app, "groups", {"edited_rows": {0: {"gpu_type": "rtx6000"}}})
    sound(app)
    assert GpuType("rtx6000", 1.25, 0.0) in cluster(app).types


def test_a_line_that_is_typed_becomes_a_name(visit: Open) -> None:
    app = visit("cluster")
    app.text_input(key="cluster_spec").set_value("133x8:v100,1x0:cpu").run()
    app.button(key="use_spec").click().run()
    sound(app)
    assert cluster(app).name == "133 nodes of 8 V100, 1 CPU node"
    assert app.title[0].value == "133 nodes of 8 V100, 1 CPU node: 1,064 GPUs on 134 nodes"
