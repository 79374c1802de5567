"""Small exports in the layouts that are read by recipes, each with figures worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from jobtraces import FORMATS, ReadOptions, detect, peek, read, recipes
from jobtraces.readers.content import sample_of
from jobtraces.readers.files import open_source
from jobtraces.readers.options import OpenQuestionError
from sim.errors import ParameterError, TraceError
from tests.jobtraces.readers.account import checked, reasons, row

NEVER, PENDING, RUNNING, CPU = (
    "the job never started",
    "the job had not started when the trace ends",
    "still running when the trace ends",
    "no GPU: a CPU job",
)
DAY = "2026-03-02T"


def number(value: float | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def packed(key: str, *items: Any) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", key: items}).encode()


def gpus(count: Any) -> dict[str, Any]:
    return {"resources": {"limits": {"nvidia.com/gpu": str(count)}}}


def pod(name: str, phase: str, *, begun: str = "", ended: str = "", **spec: Any) -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": DAY + begun}]
    state = {"terminated": {"finishedAt": DAY + ended}} if ended else {"running": {}}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "creationTimestamp": DAY + "09:00:00Z",
            "ownerReferences": [{"uid": "u1"}],
        },
        "spec": {"containers": [gpus(2)]} | spec,
        "status": {
            "phase": phase,
            "conditions": conditions if begun else [],
            "containerStatuses": [{"state": state}],
        },
    }


PODS = [
    pod("a", "Succeeded", begun="09:00:10Z", ended="10:00:10Z"),
    pod("b", "Failed", begun="09:01:00Z", ended="09:02:00Z", initContainers=[gpus(4)]),
    pod("c", "Running", begun="09:05:00Z"),
    pod("d", "Pending"),
    pod("e", "Succeeded", begun="09:00:00Z", ended="09:30:00Z", containers=[{}]),
]
WORKLOAD = {
    "kind": "Workload",
    "metadata": {"name": "w", "namespace": "ml", "creationTimestamp": DAY + "09:00:00Z"},
    "spec": {
        "queueName": "team",
        "podSets": [
            {"count": 1, "template": {"spec": {"containers": [gpus(1)]}}},
            {"count": 3, "template": {"spec": {"containers": [gpus(8), {}]}}},
        ],
    },
    "status": {
        "admission": {"clusterQueue": "research"},
        "requeueState": {"count": 1},
        "conditions": [
            {"type": "Admitted", "status": "True", "lastTransitionTime": DAY + "09:10:00Z"},
            {
                "type": "Finished",
                "status": "True",
                "reason": "Succeeded",
                "lastTransitionTime": DAY + "11:10:00Z",
            },
        ],
    },
}
VOLCANO = {
    "kind": "Job",
    "metadata": {"name": "v", "namespace": "ml", "creationTimestamp": DAY + "09:00:00Z"},
    "spec": {
        "queue": "gold",
        "tasks": [
            {"replicas": 1, "template": {"spec": {"containers": [{}]}}},
            {"replicas": 4, "template": {"spec": {"containers": [gpus(2)]}}},
        ],
    },
    "status": {
        "runningDuration": "1h0m5s",
        "state": {"phase": "Terminated", "lastTransitionTime": DAY + "10:30:05Z"},
    },
}
RAY = {
    "submission_id": "r1",
    "status": "STOPPED",
    "entrypoint": "python t.py",
    "start_time": 1_772_442_000_000,
    "end_time": 1_772_442_090_500,
    "entrypoint_num_gpus": 2,
    "metadata": {"user": "ann"},
}


def account(job: int, state: Any, *, ran: int = 100, **more: Any) -> dict[str, Any]:
    times = {"submission": 1000, "start": 1010, "end": 1010 + ran, "elapsed": ran}
    tres = [{"type": "cpu", "name": "", "count": 8}, {"type": "gres", "name": "gpu", "count": 4}]
    return {
        "job_id": job,
        "user": "ann",
        "partition": "gpu",
        "name": "train",
        "state": {"current": state},
        "time": times | {"limit": number(60)},
        "tres": {"allocated": tres},
    } | more


TYPED = [{"type": "gres", "name": f"gpu:{kind}", "count": 2} for kind in ("a100", "h100")]
ACCOUNT = [
    account(1, ["COMPLETED"]),
    account(2, "FAILED", tres={"allocated": TYPED}),
    account(3, ["CANCELLED"], ran=0),
    account(4, ["RUNNING"]),
    account(
        5, ["COMPLETED"], tres={}, submit_line="sbatch --gres=gpu:v100:3 t", allocation_nodes=2
    ),
    account(6, ["TIMEOUT"], tres={}, submit_line="srun --gpus=a100:5 t"),
    account(7, ["COMPLETED"], tres={}, submit_line="srun t"),
]


def queued(job: int, state: Any, *, end: int = 1100, **more: Any) -> dict[str, Any]:
    return {
        "job_id": job,
        "job_state": state,
        "submit_time": number(1000),
        "start_time": number(1040),
        "end_time": number(end),
        "node_count": number(2),
        "user_name": "ann",
        "gres_detail": [],
        "time_limit": number(5),
    } | more


QUEUE = [
    queued(1, ["COMPLETED"], gres_detail=["gpu:h100:4(IDX:0-3)", "gpu:h100:4(IDX:0-3)"]),
    queued(2, "FAILED", tres_per_job="gres/gpu:8", submit_time=1010),
    queued(3, ["TIMEOUT"], tres_per_node="gres:gpu:3"),
    queued(4, ["CANCELLED"], tres_alloc_str="cpu=8,gres/gpu:a100=2"),
    queued(5, ["RUNNING"], end=90_000, tres_per_job="gres/gpu:1"),
    queued(6, ["PENDING"], tres_per_job="gres/gpu:1"),
]

K8S_JOB = {
    "kind": "Job",
    "metadata": {"name": "k", "namespace": "ml", "creationTimestamp": DAY + "09:00:00Z"},
    "spec": {"parallelism": 3, "template": {"spec": {"containers": [gpus(2)]}}},
    "status": {"startTime": DAY + "09:00:05Z", "completionTime": DAY + "10:00:05Z"},
}
BROKEN = K8S_JOB | {
    "metadata": K8S_JOB["metadata"] | {"name": "f"},
    "status": {
        "startTime": DAY + "09:00:10Z",
        "conditions": [
            {"type": "Failed", "status": "True", "lastTransitionTime": DAY + "09:10:10Z"}
        ],
    },
}
MLFLOW = {
    "info": {
        "run_id": "m1",
        "status": "FINISHED",
        "start_time": 1_772_442_000_000,
        "end_time": 1_772_442_090_500,
        "user_id": "ann",
    },
    "data": {"params": [{"key": "lr", "value": "1"}, {"key": "num_gpus", "value": "4"}]},
}

# Format, file, first job: id, submission, start, duration, GPUs, outcome; what was left out.
Row = tuple[str, float, float, float, int, str]
JSON: dict[str, tuple[bytes, list[Row], dict[str, int]]] = {
    "k8s-pods": (
        packed("items", *PODS),
        [("ml/a", 0, 10, 3600, 2, "completed"), ("ml/b", 0, 60, 60, 4, "failed")],
        {RUNNING: 1, NEVER: 1, CPU: 1},
    ),
    "kueue": (
        packed("items", WORKLOAD),
        [("ml/w", 0, 600, 7200, 25, "completed")],
        {},
    ),
    "volcano": (
        packed("items", VOLCANO),
        [("ml/v", 0, 1800, 3605, 8, "cancelled")],
        {},
    ),
    "ray": (
        json.dumps([RAY, RAY | {"submission_id": "r2", "end_time": None}]).encode(),
        [("r1", 0, float("nan"), 90.5, 2, "cancelled")],
        {RUNNING: 1},
    ),
    "k8s-jobs": (
        packed("items", K8S_JOB, BROKEN, K8S_JOB | {"status": {}}),
        [
            ("ml/k", 0, float("nan"), 3600, 6, "completed"),
            ("ml/f", 0, float("nan"), 600, 6, "failed"),
        ],
        {NEVER: 1},
    ),
    "mlflow-json": (
        packed("runs", MLFLOW, MLFLOW | {"info": MLFLOW["info"] | {"status": "RUNNING"}}),
        [("m1", 0, float("nan"), 90.5, 4, "completed")],
        {RUNNING: 1},
    ),
    "sacct-json": (
        packed("jobs", *ACCOUNT),
        [
            ("1", 0, 10, 100, 4, "completed"),
            ("2", 0, 10, 100, 4, "failed"),
            ("5", 0, 10, 100, 6, "completed"),
            ("6", 0, 10, 100, 5, "timeout"),
        ],
        {NEVER: 1, RUNNING: 1, CPU: 1},
    ),
    "squeue-json": (
        packed("jobs", *QUEUE),
        [
            ("1", 0, 40, 60, 8, "completed"),
            ("2", 10, 40, 60, 8, "failed"),
            ("3", 0, 40, 60, 6, "timeout"),
            ("4", 0, 40, 60, 2, "cancelled"),
        ],
        {PENDING: 1, RUNNING: 1},
    ),
}
TABLES: dict[str, tuple[str, list[Row], dict[str, int]]] = {
    "wandb": (
        "Name,State,Notes,User,Tags,Created,Runtime,Sweep,GPU Count,GPU Type\n"
        "sunny,finished,-,ann,,2026-03-02T09:00:00.000Z,90061,,2,NVIDIA A100\n"
        "dusk,crashed,-,ann,,2026-03-02T09:00:10.000Z,60,,1,NVIDIA A100\n"
        "dawn,running,-,ann,,2026-03-02T09:00:10.000Z,60,,1,NVIDIA A100\n",
        [
            ("sunny-1", 0, float("nan"), 90_061, 2, "completed"),
            ("dusk-2", 10, float("nan"), 60, 1, "failed"),
        ],
        {RUNNING: 1},
    ),
    "mlflow": (
        "run_id,experiment_id,status,artifact_uri,start_time,end_time,params.num_gpus\n"
        "m1,0,FINISHED,x,2026-03-02 09:00:00.500000+00:00,2026-03-02 09:01:00.500000+00:00,4\n"
        "m2,0,KILLED,x,2026-03-02 09:00:30.500000+00:00,2026-03-02 09:01:00.500000+00:00,1\n"
        "m3,0,RUNNING,x,2026-03-02 09:00:30.500000+00:00,,1\n",
        [
            ("m1", 0, float("nan"), 60, 4, "completed"),
            ("m2", 30, float("nan"), 30, 1, "cancelled"),
        ],
        {RUNNING: 1},
    ),
    "acme": (
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,"
        "gpu_time\n"
        "5,ann,1,8,90,Eval,COMPLETED,2023-07-01 10:00:00+08:00,2023-07-01 10:00:10+08:00,"
        "2023-07-01 10:00:18+08:00,18,10.0,144\n"
        "6,ann,1,8,90,SFT,RUNNING,2023-07-01 10:00:00+08:00,2023-07-01 10:00:10+08:00,,,,\n",
        [("5", 0, 10, 8, 8, "completed")],
        {RUNNING: 1},
    ),
    "muri": (
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
        "resource_time_0,resource_time_1,resource_time_2,priority\n"
        "0,4,0,100,resnet18,128,927475000,11174000,886,703,62,17,0\n"
        "1,2,1456000,100,resnet18,128,500,1456000,921,723,113,73,1\n",
        [("0", 0, float("nan"), 927_475, 4, ""), ("1", 1456, float("nan"), 0.5, 2, "")],
        {},
    ),
    "chronus": (
        "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,"
        "expect_value_list,best_effort,job_type\n"
        "0,ann,1,5601,5530,vgg,96,5,159-189,10-8,0,soft\n1,ann,0,5602,1,vgg,96,5,1,1,0,soft\n",
        [("0", 0, float("nan"), 96, 1, "")],
        {CPU: 1},
    ),
    "dirlab": (
        "u_id,user,gpu_num,cpu_num,node_num,interval,run_time,wall_time,new_status\n"
        "0,1,1,0,1,0,84,0,Pass\n1,1,8,0,4,100,90,120,Killed\n2,1,1,0,1,20,80,0,Failed\n",
        [
            ("0", 0, float("nan"), 84, 1, "completed"),
            ("1", 100, float("nan"), 90, 8, "cancelled"),
            ("2", 120, float("nan"), 80, 1, "failed"),
        ],
        {},
    ),
    "dlrm": (
        "instance_sn,role,app_name,cpu_request,gpu_request,memory_request,creation_time,scheduled_time,"
        "deletion_time\n"
        "i0,HN,app,12,1,120.0,,,500\ni1,HN,app,12,1,120.0,100,110,210\ni2,HN,app,12,1,120.0,100,110,\n",
        [("i0", 0, float("nan"), 500, 1, ""), ("i1", 100, 110, 100, 1, "")],
        {RUNNING: 1},
    ),
    "elasticflow": (
        "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
        "a,100,7,vgg16,900,256,4,500\n",
        [("a", 0, float("nan"), 500, 4, "")],
        {},
    ),
    "elasticflow-old": (
        "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,"
        "iteration\n0,100,7,vgg16,900,256,4,600,500,7\n",
        [("0", 0, float("nan"), 500, 4, "")],
        {},
    ),
    "helios": (
        "job_id,user,vc,gpu_num,cpu_num,state,submit_time,start_time,end_time,duration\n"
        "1,u,v,8,64,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:40,2020-04-01 01:00:40,3600\n"
        "2,u,v,1,8,CANCELLED,2020-04-01 00:00:20,,,\n"
        "3,u,v,1,8,RUNNING,2020-04-01 00:00:30,2020-04-01 00:00:50,,\n",
        [("1", 0, 30, 3600, 8, "completed")],
        {NEVER: 1, RUNNING: 1},
    ),
    "helios-list": (
        "job_id,arrival_s,service_sec,gpu_count\n4#93,1195252.0,40.0,1\n5#105,1196826.0,172800.0,16\n",
        [("4#93", 0, float("nan"), 40, 1, ""), ("5#105", 1574, float("nan"), 172800, 16, "")],
        {},
    ),
    "hydra": (
        ",job_name,norm_job_submit_time,ddl,A100,V100,GTX2080Ti\n"
        "0,j0,0,inf,1020.0,1540.0,2595.0\n1,j1,60,4000,10,20,30\n",
        [("j0", 0, float("nan"), 1540, 1, ""), ("j1", 60, float("nan"), 20, 1, "")],
        {},
    ),
    "itp": (
        "job_id,submission_time,duration,num_gpu\n965d744f,1932025,2429,64\n",
        [("965d744f", 0, float("nan"), 2429, 64, "")],
        {},
    ),
    "openb": (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
        "scheduled_time\n"
        "p0,12000,16384,8,1000,V100M16|V100M32,LS,Running,0,1000,10\n"
        "p1,6000,12288,1,460,,LS,Pending,5,1000,\np2,6000,12288,0,0,,BE,Succeeded,5,1000,7\n",
        [("p0", 0, 10, 990, 8, "completed")],
        {NEVER: 1, CPU: 1},
    ),
    "slurm-requests": (
        "job_id,submit_s,time_limit_min,run_s,tasks,tasks_per_node,gres,mem_per_node_mb\n"
        "7,0,10,300,8,4,gpu:2,2048\n8,30,5,60,2,,,\n",
        [("7", 0, float("nan"), 300, 4, "")],
        {CPU: 1},
    ),
    "philly-csv": (
        "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-07 01:11:39,60.0,8,480.0,ee\n",
        [("row-1", 0, float("nan"), 60, 8, "")],
        {},
    ),
    "tiresias": (
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,2,30,606,vgg19,164,30\n",
        [("0", 0, float("nan"), 164, 2, "")],
        {},
    ),
    "rubick": (
        "name,submission_time,duration,application,num_gpus,num_cpus,bandwidth,exec_plan,steps,is_sla\n"
        "vit-0,5,3163.25,vit,2,16,0,zero-dp,37239,0\n",
        [("vit-0", 0, float("nan"), 3163.25, 2, "")],
        {},
    ),
    "spot-2026": (
        "job_name,organization,job_type,duration,gpu_request,cpu_request,worker_num,gpu_seconds,"
        "submit_time\n236855,13,Spot,100.0,2.0,8.0,4,800,0.0\n",
        [("236855", 0, float("nan"), 100, 8, "")],
        {},
    ),
}
EVENT = {
    "kind": "Event",
    "metadata": {"name": "train-0.17a", "namespace": "ml"},
    "involvedObject": {"kind": "Pod", "name": "train-0", "namespace": "ml"},
    "reason": "Scheduled",
    "firstTimestamp": DAY + "10:00:00Z",
}
NEW = {"regarding": EVENT["involvedObject"]}
CASES = {
    **JSON,
    **{name: (text.encode(), rows, left) for name, (text, rows, left) in TABLES.items()},
}


@pytest.mark.parametrize("fmt", CASES)
def test_an_export(fmt: str) -> None:
    data, rows, left = CASES[fmt]
    got = checked(data)
    assert got.fmt == fmt
    dropped = {reason: count for action, reason, count in got.counts() if action == "dropped"}
    assert dropped == left
    assert got.used == len(rows)
    for job_id, submitted, started, duration, cards, outcome in rows:
        job = row(got, job_id)
        told = [job["submit_time_s"], job.get("start_time_s", float("nan")), job["duration_s"]]
        assert told == pytest.approx([submitted, started, duration], nan_ok=True)
        assert job["num_gpus"] == cards
        assert job.get("status", "") == outcome or (outcome == "" and pd.isna(job["status"]))


RUNAI = (
    "Workload,Type,Status,Project,Department,Creation time,Completion time,GPU compute request\n"
    'w,Training,Completed,vision,lab,"03/02/2026, 09:00 AM","03/02/2026, 10:30 AM",2\n'
    'v,Training,Running,vision,lab,"03/02/2026, 01:05 PM",-,1\n'
)


def test_a_fact_that_no_one_can_guess_is_asked() -> None:
    with pytest.raises(OpenQuestionError, match="which includes the wait") as caught:
        read(RUNAI.encode())
    assert [(one.id, list(one.options)) for one in caught.value.questions] == [
        ("wait", ["included"])
    ]
    got = read(RUNAI.encode(), options=ReadOptions(answers={"wait": "included"}))
    job = got.trace.frame.iloc[0]
    assert (got.fmt, got.used, job["duration_s"], job["num_gpus"]) == ("runai", 1, 5_400, 2)
    assert reasons(got) == {RUNNING: 1}
    with pytest.raises(ParameterError, match="not one of included"):
        read(RUNAI.encode(), options=ReadOptions(answers={"wait": "x"}))


@pytest.mark.parametrize("fmt", ["wandb", "mlflow", "mlflow-json"])
def test_gpus_of_runs_are_asked_where_they_are_not_named(fmt: str) -> None:
    data = CASES[fmt][0].replace(b"GPU Count", b"Cards").replace(b"num_gpus", b"depth")
    with pytest.raises(OpenQuestionError, match="How many GPUs does each run take"):
        read(data)
    got = read(data, options=ReadOptions(answers={"gpus_each": "8"}))
    assert set(got.trace.frame["num_gpus"]) == {8}


def test_the_start_of_kubernetes_jobs_is_asked() -> None:
    data = CASES["k8s-jobs"][0]
    assert [(one.id, one.default) for one in read(data).questions] == [("job_start", "unknown")]
    got = read(data, options=ReadOptions(answers={"job_start": "taken_up"}))
    assert got.questions == ()
    assert row(got, "ml/k")["start_time_s"] == 5


def test_pods_of_one_owner_are_a_job_each_or_a_gang() -> None:
    data = packed(
        "items",
        *PODS,
        pod("f", "Succeeded", begun="09:00:05Z", ended="10:00:00Z")
        | {"metadata": PODS[0]["metadata"] | {"name": "f", "ownerReferences": []}},
    )
    (question,) = checked(data).questions
    assert (question.id, question.default) == ("gangs", "separate")
    assert question.text.startswith("4 pods share their owner")
    got = checked(data, options=ReadOptions(answers={"gangs": "merge"}))
    assert (got.used, got.merged, got.questions) == (2, 2, ())
    # a and b, and e without a GPU: from 09:01:00, the last start, to 10:00:10, the last end.
    job = row(got, "ml/e")
    told = ["submit_time_s", "start_time_s", "end_time_s", "duration_s", "num_gpus"]
    assert job[told].tolist() == [0, 60, 3610, 3550, 6]
    assert row(got, "ml/f")["duration_s"] == 3595


def test_of_two_recipes_that_fit_equally_one_is_asked_for() -> None:
    data = CASES["wandb"][0]
    content = open_source(data, "runs.csv", ReadOptions())
    one = next(recipe for recipe in recipes.shipped_recipes() if recipe.name == "wandb")
    minutes = replace(
        one, name="other", title="Other", columns={**one.columns, "duration_s": "num(runtime) * 60"}
    )
    with pytest.raises(OpenQuestionError, match="fits 2 formats equally") as caught:
        recipes.choose_recipe(content, ReadOptions(), [one, minutes])
    told = caught.value.questions[0]
    assert "Other: the first job takes 2 GPUs for 5,403,660 s" in told.text
    assert told.options == {"wandb": one.title, "other": "Other"}
    for name, chosen in (("wandb", one), ("other", minutes)):
        options = ReadOptions(answers={"format": name})
        assert recipes.choose_recipe(content, options, [one, minutes]) is chosen
    assert recipes.choose_recipe(content, ReadOptions()) is one
    # The name of a file says which where nothing else does, and never more.
    called = replace(minutes, file="*_minutes.csv")
    for name in ("My_Minutes.csv", "traces.zip: my_minutes.csv", "in/my_minutes.csv"):
        assert (
            recipes.choose_recipe(replace(content, name=name), ReadOptions(), [one, called])
            is called
        )
    with pytest.raises(OpenQuestionError):
        recipes.choose_recipe(content, ReadOptions(), [one, called])
    content = replace(content, name="my_minutes.csv")
    both = [replace(one, file="*.csv"), called]
    with pytest.raises(OpenQuestionError):
        recipes.choose_recipe(content, ReadOptions(), both)
    heavier = replace(one, first_cell=".+")
    assert recipes.choose_recipe(content, ReadOptions(), [heavier, called]) is heavier


def test_every_recipe_has_an_export() -> None:
    # Traces of several tables have tests of their own.
    single = {one.name for one in recipes.shipped_recipes() if not (one.refuse or one.tables)}
    assert single == {
        *CASES,
        "runai",
        "philly-json",
        "sacct",
        "slurm-db",
        "swf",
        "scontrol",
        "pbs",
        "lsf",
        "gavel",
        "gavel-list",
        "sia",
    }


@pytest.mark.parametrize("fmt", CASES)
def test_exactly_one_recipe_wins(fmt: str) -> None:
    sample = sample_of(CASES[fmt][0].decode())
    fitting = [recipe for recipe in recipes.shipped_recipes() if not recipes.misfit(recipe, sample)]
    heaviest = max(recipe.weight for recipe in fitting)
    assert [recipe.name for recipe in fitting if recipe.weight == heaviest] == [fmt]
    found = detect(open_source(CASES[fmt][0], "x", ReadOptions()))
    assert found is not None
    assert found.name == fmt


def test_facts_beside_the_figures() -> None:
    kueue = row(checked(CASES["kueue"][0]), "ml/w")
    assert (kueue["vc"], kueue["user"]) == ("research", "ml")
    account = checked(CASES["sacct-json"][0])
    assert tuple(row(account, "1")[["user", "partition", "name", "time_limit_s"]]) == (
        *("ann", "gpu", "train"),
        3600,
    )
    assert row(account, "2")["gpu_type"] == "a100"
    openb = row(checked(CASES["openb"][0]), "p0")
    assert (openb["gpu_types_allowed"], openb["cpus"], openb["mem_gb"]) == (
        "v100m16|v100m32",
        12,
        16,
    )
    hydra = checked(CASES["hydra"][0])
    assert row(hydra, "j1")["deadline_s"] == 4000
    assert pd.isna(row(hydra, "j0")["deadline_s"])
    assert set(hydra.trace.frame["gpu_type"]) == {"v100"}
    acme = row(checked(CASES["acme"][0]), "5")
    assert "vc" not in acme
    assert row(checked(CASES["spot-2026"][0]), "236855")["preemptible"] == 1


@pytest.mark.parametrize(
    ("fmt", "words"),
    [
        ("kueue", "evicted and admitted again (1)"),
        ("ray", "Ray records no submission"),
        ("squeue-json", "snapshot of a queue"),
        ("hydra", "Durations are on a V100"),
        ("acme", "end minus start is used (1)"),
        ("sacct-json", "taken from the submission line (2)"),
        ("muri", "milliseconds"),
    ],
)
def test_what_is_told(fmt: str, words: str) -> None:
    got = checked(CASES[fmt][0])
    assert any(words in sentence for sentence in (*got.guesses, *got.warnings))


def test_the_calendar_is_kept_where_there_is_one() -> None:
    assert checked(CASES["k8s-pods"][0]).trace.epoch == "2026-03-02T09:00:00+00:00"
    assert checked(CASES["openb"][0]).trace.epoch == ""
    local = CASES["acme"][0].replace(b"+08:00", b"")
    shanghai = checked(local)
    assert shanghai.trace.epoch == "2023-07-01T10:00:00+08:00"
    assert "Times have no offset; they are read as Asia/Shanghai." in shanghai.guesses
    berlin = checked(local, options=ReadOptions(zone="Europe/Berlin"))
    assert berlin.trace.epoch == "2023-07-01T10:00:00+02:00"


def test_a_queue_keeps_jobs_that_run_or_wait_with_their_state() -> None:
    late = queued(7, ["PENDING"], submit_time=number(900), priority=number(42))
    got = checked(packed("jobs", *QUEUE, late))
    # The first job that ended was submitted at 1000 s, which is the trace's second 0.
    kept = got.unended.set_index("job_id")
    assert kept["state"].to_dict() == {"5": "running", "6": "pending", "7": "pending"}
    assert kept["status"].to_dict() == {"5": "running", "6": "pending", "7": "pending"}
    assert kept["submit_time_s"].to_dict() == {"5": 0, "6": 0, "7": -100}
    assert kept.loc["5", "start_time_s"] == 40
    assert kept["num_gpus"].tolist() == [1, 1, 0]
    assert kept["time_limit_s"].tolist() == [300, 300, 300]
    assert kept.loc["7", "priority"] == 42
    assert kept["duration_s"].isna().all()
    assert len(got.trace) == 4
    assert checked(packed("jobs", *QUEUE[:4])).unended.empty


def test_jobs_that_still_run_are_cut_on_request() -> None:
    got = checked(CASES["k8s-pods"][0], options=ReadOptions(unfinished="cut"))
    # From 09:05:00 until 10:00:10, the last instant of the export.
    assert row(got, "ml/c")["duration_s"] == 3310
    assert reasons(got)["still running when the trace ends: cut there"] == 1


BAD = {
    "cut": (CASES["k8s-pods"][0][:-20], "incomplete or not valid"),
    "empty": (b'{"items": []}', "Choose a file with jobs"),
    "offsets": (
        CASES["acme"][0].replace(b"10:00:10+08:00", b"10:00:10", 1),
        "Give every time an offset",
    ),
    "constant": (json.dumps([RAY | {"x": float("nan")}]).encode(), "NaN is not a JSON value"),
    "summary": (
        b"id,job_num,gpu_job_num,avg_run_time_gpu,avg_que_time_gpu\n1,2,3,4,5\n",
        "summarizes clusters",
    ),
    "events": (packed("items", EVENT, EVENT), "Export pods"),
    "new events": (
        packed("items", {key: one for key, one in EVENT.items() if key != "involvedObject"} | NEW),
        "hold no GPU requests",
    ),
    "pai": (b"0" * 24 + b",i,u,Running,1,\n", "the only table with GPUs"),
}


@pytest.mark.parametrize(("data", "words"), BAD.values(), ids=BAD.keys())
def test_a_bad_file_is_one_sentence(data: bytes, words: str) -> None:
    with pytest.raises(TraceError, match=words) as caught:
        read(data, name="upload")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_json_that_is_damaged_behind_its_beginning() -> None:
    ray = json.dumps([RAY | {"submission_id": f"r{at}"} for at in range(2_000)])
    for at, words in ((len(ray) - 50, "at character"), (len(ray) // 2, "at character")):
        with pytest.raises(TraceError, match=words):
            read(ray[:at].encode())
    deep = ray[:-1] + ", " + "[" * 200_000
    with pytest.raises(TraceError, match="nested too deeply"):
        read(deep.encode())
    with pytest.raises(TraceError, match="is not a list of jobs"):
        read((ray[:-1] + ", 5]").encode())
    with pytest.raises(TraceError, match="more than 1,000,000"):
        read((ray[:-1] + ', {"x": "' + "y" * 1_000_001 + '"}]').encode())
    with pytest.raises(TraceError, match="more than the limit of 10"):
        read(ray.encode(), options=ReadOptions(max_rows=10))


def test_one_object_per_line() -> None:
    lines = "\n".join(json.dumps(RAY | {"submission_id": f"r{at}"}) for at in range(3))
    assert checked(lines.encode()).used == 3


def test_a_mapping_overrides_a_recipe() -> None:
    columns = {"submit_time_s": "submit_time", "num_gpus": "num_gpu", "duration_s": "interval"}
    got = checked(CASES["chronus"][0], options=ReadOptions(mapping=columns))
    assert (got.fmt, row(got, "0")["duration_s"]) == ("table", 5)


def test_a_look_at_the_beginning() -> None:
    found = peek(CASES["openb"][0])
    assert (found.fmt, found.columns[0]) == ("openb", "name")
    assert peek(CASES["ray"][0]).fmt == "ray"
    assert FORMATS["openb"].sources["num_gpus"] == ("num_gpu", "gpu_milli")


def test_submissions_to_slurm_keep_recorded_starts_and_what_a_site_adds() -> None:
    text = (
        "job_id,submit_s,time_limit_min,run_s,tasks,tasks_per_node,start_time_s,site_priority\n"
        "7,100,10,300,8,4,160,500\n8,130,5,60,2,,,\n"
    )
    jobs = checked(text.encode(), options=ReadOptions(cpu_jobs="keep")).trace.frame
    assert jobs["start_time_s"].tolist() == pytest.approx([60.0, float("nan")], nan_ok=True)
    assert jobs["site_priority"].tolist() == pytest.approx([500.0, float("nan")], nan_ok=True)
