"""What of a changed configuration of Slurm is written down, and that it is the change."""

from __future__ import annotations

import random

import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from allocators import make
from allocators.sites.slurm.config import read_conf
from jobtraces.generate import workload
from sim.cluster import Cluster
from sim.engine.simulator import Simulator
from sim.errors import ParameterError
from sim.params import Spec
from sim.trace import Trace
from trainyard.export.caveats import ExportRun
from trainyard.export.slurm import apply_patch, conf_text, load
from trainyard.export.targets import nearest, patch, patch_of_simulated_runs
from trainyard.runs.run import run, summarize_run
from trainyard.study.scenario import Scenario, TraceSpec

CONF = """# The site
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityMaxAge=0-5
SchedulerParameters==bf_max_job_user=20,\\
  max_job_bf=1200,bf_continue
SelectType=select/cons_tres
NodeName=DEFAULT CPUs=8 Gres=gpu:8
NodeName=n[1-4]
PartitionName=main Nodes=n[1-4] Default=YES
"""


def slurm(conf: str = CONF, **params: object) -> Spec:
    return Spec.of("slurm", conf=conf, **params)


def test_only_lines_that_differ_are_written_below_the_old_ones() -> None:
    text = patch(slurm(), slurm(weight_age=5000, half_life_h=36), ["Simulated."])
    assert text.splitlines() == [
        "# Simulated.",
        "# To apply: change slurm.conf on all hosts, then scontrol reconfigure. Limits apply at"
        " once; running jobs continue.",
        "# line 3: PriorityWeightAge=1000",
        "PriorityWeightAge=5000",
        "# new",
        "PriorityDecayHalfLife=1-12:00:00",
    ]


def test_the_jobs_that_a_backfill_cycle_tests_are_foretold() -> None:
    conf = "NodeName=n1 CPUs=8 Gres=gpu:8\nPartitionName=main Nodes=n1 Default=YES\n"
    rows = {"job_id": list("abcd"), "submit_time_s": 0.0, "num_gpus": 8, "duration_s": 1000.0}
    trace = Trace.of(pd.DataFrame(rows).assign(time_limit_s=1200.0))
    cluster = Cluster.parse("1x8:v100")
    found = []
    for most in (50, 1):
        scenario = Scenario(TraceSpec("x"), cluster, slurm(conf, bf_max_job_test=most))
        done = run(scenario, trace=trace)
        found.append(ExportRun(scenario, "key", summarize_run(scenario, done, trace), done.remarks))
    # One after the other runs, so 3, 2 and 1 wait for the same time each; then nobody does.
    assert found[0].remarks[-1] == "The backfill tested 2.0 jobs a cycle (Depth Mean of sdiag)."
    text = patch_of_simulated_runs(trace, found[:1], found[1:], None)
    assert (
        "\n# Test with sdiag before and after: mean backfill cycle, depth; expect -50 % tested jobs"
        " (2.0 -> 1.0 per cycle, simulated).\n"
    ) in text
    silent = found[0]._replace(remarks=())
    look = "Test with sdiag before and after: mean backfill cycle, depth."
    assert load([silent], found[1:]) == [look]


def test_options_keep_their_order_and_old_spellings() -> None:
    text = patch(slurm(), slurm(bf_max_job_test=300, bf_window_h=72, bf_max_job_user=5))
    assert text.splitlines()[-2:] == [
        "# line 5: SchedulerParameters==bf_max_job_user=20, max_job_bf=1200,bf_continue",
        "SchedulerParameters=bf_max_job_user=5,max_job_bf=300,bf_continue,bf_window=4320",
    ]


@pytest.mark.parametrize(
    "params",
    [
        {"weight_age": 5000},
        {"favor_small": True, "weight_size": 9, "dampening": 5.5},
        {"max_age_h": 1.5, "half_life_h": 0.25},
        {"bf_interval_s": 60, "queue_depth": 7, "bf_max_job_test": 42},
        {"backfill": False},
    ],
)
def test_applied_to_the_file_it_is_what_was_simulated(params: dict[str, object]) -> None:
    once = apply_patch(slurm(), patch(slurm(), slurm(**params)))
    simulated, applied = (read_conf(conf_text(spec)) for spec in (slurm(**params), once))
    assert (applied.values, applied.options) == (simulated.values, simulated.options)
    assert (applied.nodes, applied.partitions) == (simulated.nodes, simulated.partitions)
    with pytest.raises(ParameterError, match="are equal"):
        patch(slurm(**params), once)
    site = workload("site:jobs=60,nodes=4,gangs=1/8/16,shares=1/1/1")
    digests = {
        Simulator(site.make(), site.machines(), make(spec)).run().digest()
        for spec in (slurm(**params), once)
    }
    assert len(digests) == 1


def test_parameters_of_the_policy_in_force_count_as_lines_of_its_file() -> None:
    before = slurm(weight_size=7, bf_max_job_user=9)
    new = CONF.replace("PriorityMaxAge=0-5\n", "")
    text = patch(before, slurm(new, weight_size=7, bf_max_job_user=3))
    assert "\nSchedulerParameters=bf_max_job_user=3,max_job_bf=1200,bf_continue\n" in text
    assert "# delete line 4: PriorityMaxAge=0-5\n" in text
    assert "PriorityWeightJobSize" not in text


def test_another_file_is_a_change_too_and_some_need_a_restart() -> None:
    new = CONF.replace("n[1-4]", "n[1-6]").replace("PriorityMaxAge=0-5\n", "")
    text = patch(slurm(), slurm(new))
    assert "restart slurmctld (NodeName takes effect at a restart only)" in text
    assert "# line 9: NodeName=n[1-4]" not in text
    assert "# new\nNodeName=n[1-6]\n" in text
    assert "# delete line 9: NodeName=n[1-4]\n" in text
    assert "# line 10: PartitionName=main Nodes=n[1-4] Default=YES\n" in text
    assert "# delete line 4: PriorityMaxAge=0-5\n" in text


def test_qualities_of_service_are_changed_by_commands() -> None:
    old = "Name|Priority|MaxTRESPU\nnormal|0|gres/gpu=8\nlow|0|\nidle|0|\nbest|0|\n"
    new = "Name|Priority|MaxTRESPU\nnormal|0|gres/gpu=4\nhigh|100|\n"
    text = patch(slurm(qos=old), slurm(qos=new))
    assert text.splitlines()[-6:] == [
        "# was: MaxTRESPerUser=gres/gpu=8",
        "# sacctmgr -i modify qos normal set MaxTRESPerUser=gres/gpu=4",
        "# sacctmgr -i add qos name=high Priority=100",
        "# sacctmgr -i delete qos name=best",
        "# sacctmgr -i delete qos name=idle",
        "# sacctmgr -i delete qos name=low",
    ]
    with pytest.raises(ParameterError, match="are equal"):
        patch(apply_patch(slurm(qos=old), text), slurm(qos=new))


def test_shares_and_limits_of_accounts_and_users_are_changed_by_commands() -> None:
    old = "add account phys Fairshare=10 GrpTRES=cpu=64,gres/gpu=8\nadd user ann Account=phys\n"
    new = (
        "add account phys Fairshare=30 GrpTRES=cpu=64\nadd user ann Account=phys MaxJobs=5\n"
        "add user bob Account=phys MaxWall=90\n"
    )
    text = patch(slurm(accounts=old), slurm(accounts=new))
    assert text.splitlines() == [
        "# Run as an administrator of the accounting:",
        "# was: Fairshare=10 GrpTRES=gres/gpu=8",
        "# sacctmgr -i modify account phys set Fairshare=30 GrpTRES=gres/gpu=-1",
        "# was: MaxJobs=(unset)",
        "# sacctmgr -i modify user ann where account=phys set MaxJobs=5",
        "# sacctmgr -i add user name=bob account=phys DefaultAccount=phys MaxWall=0-01:30:00",
    ]
    again = apply_patch(slurm(accounts=old), text)
    with pytest.raises(ParameterError, match="are equal"):
        patch(again, slurm(accounts=new))


def drawn(rng: random.Random) -> str:
    """A slurm.conf with keys, options, nodes and partitions by chance."""
    keys = {
        "PriorityType": ["priority/basic", "priority/multifactor"],
        "PriorityWeightAge": ["1000", "0"],
        "PriorityMaxAge": ["1-0", "0-12:30:00"],
        "PriorityFlags": ["NO_FAIR_TREE", "ACCRUE_ALWAYS,INCR_ONLY"],
        "SchedulerParameters": [
            "bf_interval=60,defer",
            "=max_job_bf=50,\\\n bf_window=300",
            "bf_continue",
        ],
        "SelectTypeParameters": ["CR_CPU", "CR_Core_Memory"],
        "Prolog": ["/bin/true # as ever", "/bin/false"],
    }
    conf = [f"{key}={rng.choice(keys[key])}" for key in rng.sample(sorted(keys), rng.randint(0, 7))]
    conf.append(f"NodeName=DEFAULT CPUs={rng.choice([4, 8])} RealMemory={rng.choice([100, 200])}")
    groups = rng.sample("abc", rng.randint(1, 3))
    for group in groups:
        more = rng.choice(["", " Gres=gpu:a100:4", " Weight=3 Feature=big,fast"])
        conf.append(f"NodeName={group}[1-{rng.randint(1, 4)}]{more}")
    for name in rng.sample(["main", "long", "test"], rng.randint(1, 3)):
        more = rng.choice(["", " MaxTime=1-0", " PriorityTier=3 State=DRAIN", " Default=YES"])
        conf.append(f"PartitionName={name} Nodes={rng.choice(groups)}1{more}")
    return "\n".join(conf) + "\n"


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_a_patch_makes_the_old_file_the_new_one(seed: int) -> None:
    rng = random.Random(seed)
    old, new = drawn(rng), drawn(rng)
    assume(sorted(old.split("\n")) != sorted(new.split("\n")))
    before, after = slurm(old), slurm(new)
    once, wanted = (
        read_conf(conf_text(spec)) for spec in (apply_patch(before, patch(before, after)), after)
    )
    assert (once.values, once.options) == (wanted.values, wanted.options)
    assert {one.name: one for one in once.nodes} == {one.name: one for one in wanted.nodes}
    assert sorted(map(repr, once.partitions)) == sorted(map(repr, wanted.partitions))


def test_lines_of_which_the_order_counts_are_refused() -> None:
    small, large = "NodeName=DEFAULT CPUs=4 Gres=gpu:8", "NodeName=DEFAULT CPUs=8 Gres=gpu:8"
    old = CONF.replace(
        "NodeName=DEFAULT CPUs=8 Gres=gpu:8\nNodeName=n[1-4]\n",
        f"{small}\nNodeName=n[1-2]\n{large}\nNodeName=n[3-4]\n",
    )
    new = old.replace(small, "x").replace(large, small).replace("x", large)
    assert read_conf(old).nodes != read_conf(new).nodes
    with pytest.raises(ParameterError, match="Use the whole new file"):
        patch(slurm(old), slurm(new))


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (slurm(), "are equal"),
        (slurm(default_limit_h=1), "differ in default_limit_h, which a patch cannot express"),
        (Spec("slurm"), "slurm:conf=FILE twice"),
        (Spec("srtf"), "The nearest setting is favor_small with a weight_size above all other"),
        (Spec("gavel"), "none of its settings comes near it"),
        (slurm("nonsense\n"), "slurm.conf, line 1"),
    ],
)
def test_what_cannot_be_taken_home(after: Spec, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        patch(slurm(), after)


def test_the_nearest_settings_can_be_simulated_and_taken_home() -> None:
    names = ("fifo", "easy", "sjf", "las", "gavel")
    found = {name: nearest(slurm(), Spec(name)) for name in names}
    assert found.pop("gavel")[1] is None
    for name, (words, spec) in found.items():
        title = make(Spec(name)).card.title
        assert words.startswith(f"Slurm cannot run {title}. The nearest setting is ")
        assert spec is not None
        assert patch(slurm(), spec)
    by_submission = found["fifo"][1]
    assert by_submission is not None
    assert "PriorityType=priority/basic\n" in conf_text(by_submission)
    assert "give favor_small=yes,weight_size=20000 to slurm" in found["sjf"][0]
    # The only other weight is that of age, 1,000.
    assert "PriorityWeightFairshare=20000\n" in patch(slurm(), found["las"][1] or slurm())
    # The old spelling of the option stays.
    assert "max_job_bf=10" in patch(slurm(), found["easy"][1] or slurm())


def test_a_nearest_setting_is_one_that_counts_in_the_file() -> None:
    basic = CONF.replace("priority/multifactor", "priority/basic")
    assert nearest(slurm(basic), Spec("fifo")) == (
        "Slurm cannot run FIFO, but already has the nearest setting: PriorityType=priority/basic,"
        " which orders by submission.",
        None,
    )
    # Weights count under priority/multifactor only.
    for name, own in (("sjf", "favor_small=yes"), ("las", "half_life_h=1")):
        words, spec = nearest(slurm(basic), Spec(name))
        line = "PriorityType=priority/multifactor"
        assert f"give a copy of slurm.conf with {line} and {own},weight_" in words
        assert f"\n{line}\n" in patch(slurm(basic), spec or slurm(basic))
