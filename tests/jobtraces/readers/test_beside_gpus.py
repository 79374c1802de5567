"""What logs say of jobs beside GPUs and times."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pandas as pd

from jobtraces import read
from tests.jobtraces.readers.test_exports import PODS, QUEUE

SACCT = (
    "JobID|Submit|Start|End|State|ElapsedRaw|AllocTRES|Account|QOS|Constraints|Reservation|Restarts|NodeList\n"
    "7_4|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T00:10:00|COMPLETED|600|gres/gpu=1"
    "|bio|high|a100&ib|friday|2|gpu[1-2]\n"
    "8|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T00:10:00|COMPLETED|600|gres/gpu=1|bio||||0|gpu1\n"
)


def first(data: bytes, name: str) -> dict[str, Any]:
    frame: pd.DataFrame = read(data, name=name).trace.frame
    return {str(key): value for key, value in frame.iloc[0].items()}


def test_accounting_as_text() -> None:
    row = first(SACCT.encode(), "jobs.txt")
    assert {key: row[key] for key in ("account", "qos", "constraint", "reservation", "array")} == {
        "account": "bio",
        "qos": "high",
        "constraint": "a100&ib",
        "reservation": "friday",
        "array": "7",
    }
    assert (row["requeues"], row["node_list"]) == (2, "gpu[1-2]")
    other = read(SACCT.encode(), name="jobs.txt").trace.frame.iloc[1]
    assert other[["array", "reservation", "constraint"]].isna().all()


def test_the_queue_of_slurm() -> None:
    job = deepcopy(QUEUE[0]) | {
        "resv_name": "friday",
        "tasks": {"set": True, "infinite": False, "number": 4},
        "tasks_per_node": {"set": False, "infinite": False, "number": 0},
        "cpus_per_task": {"set": True, "infinite": False, "number": 6},
        "priority": {"set": True, "infinite": False, "number": 545},
        "requeue": False,
    }
    row = first(json.dumps({"jobs": [job]}).encode(), "queue.json")
    assert (row["reservation"], row["tasks"], row["cpus_per_task"]) == ("friday", 4, 6)
    assert (row["priority"], row["requeue"]) == (545, 0)
    assert "tasks_per_node" not in row


def test_pods() -> None:
    pod = deepcopy(PODS[0])
    pod["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team-a"}
    pod["spec"] |= {
        "nodeName": "gpu-7",
        "priority": 1000,
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
    }
    pod["status"]["qosClass"] = "Guaranteed"
    row = first(json.dumps({"items": [pod]}).encode(), "pods.json")
    found = [row[key] for key in ("vc", "node_list", "priority", "gpu_types_allowed", "qos")]
    assert found == ["team-a", "gpu-7", 1000, "nvidia-a100-sxm4-80gb", "Guaranteed"]


def test_spot_jobs() -> None:
    head = "job_name,organization,gpu_model,job_type,duration,gpu_request,cpu_request,worker_num,submit_time"  # noqa: E501
    frame = read(
        f"{head}\n1,5,A10,Spot,60,0.5,4,1,0\n2,5,A10,HP,60,8,4,2,5\n".encode(), name="spot.csv"
    ).trace.frame
    assert frame["qos"].tolist() == ["Spot", "HP"]
    assert frame["tasks"].tolist() == [1, 2]
    assert frame["gpu_fraction"].fillna(0).tolist() == [0.5, 0]
