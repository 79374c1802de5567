"""Classes of Slurm settings: used, without effect on a simulation, or not simulated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

USED, IDLE, MISSED = "used", "without effect here", "changes results and is not simulated"
CLASSES: Final = (USED, IDLE, MISSED)


class Finding(NamedTuple):
    """What the simulation does with one setting of a configuration file.

    Parameters
    ----------
    file : str
        Common name of the file.
    line : int
        Line number.
    key, value : str
        As written.
    kind : str
        One of `CLASSES`.
    why : str
        What is not simulated, as the end of a sentence; "" = no comment.
    """

    file: str
    line: int
    key: str
    value: str
    kind: str
    why: str = ""

    def sentence(self) -> str:
        """Return the finding as a sentence: file, line, setting, and its class or reason."""
        value = f"={self.value}" if self.value else ""
        shown = f"{self.key}{value}"
        shown = shown if len(shown) <= 80 else f"{shown[:79]}…"
        return f"{self.file}, line {self.line}: {shown} {self.why or self.kind}."


def words(text: str) -> frozenset[str]:
    """Return the words of a text in lower case."""
    return frozenset(text.lower().split())


USED_KEYS: Final = words("""
    PriorityType PriorityWeightAge PriorityWeightAssoc PriorityWeightFairshare
    PriorityWeightJobSize PriorityWeightPartition PriorityWeightQOS PriorityWeightTRES
    PriorityUsageResetPeriod PriorityMaxAge PriorityDecayHalfLife PriorityCalcPeriod
    PriorityFavorSmall PriorityFlags
    FairShareDampeningFactor SchedulerType SchedulerParameters SelectType SelectTypeParameters
    EnforcePartLimits OverTimeLimit KillWait PreemptType PreemptMode PreemptExemptTime
    DefMemPerCPU DefMemPerNode MaxMemPerCPU MaxMemPerNode TopologyPlugin JobRequeue
    AccountingStorageEnforce
""")
USED_OPTIONS: Final = words("""
    sched_interval batch_sched_delay default_queue_depth partition_job_depth sched_max_job_start
    defer defer_batch bf_interval bf_window bf_resolution bf_max_job_test bf_max_job_user
    bf_max_job_part bf_max_job_assoc bf_max_job_user_part bf_max_job_start bf_min_age_reserve
    bf_min_prio_reserve bf_job_part_count_reserve bf_one_resv_per_job bf_max_job_array_resv
    bf_window_linear bf_busy_nodes assoc_limit_stop preempt_youngest_first
    preempt_reorder_count preempt_strict_order
""")
USED_PARTITION: Final = words("""
    PartitionName Nodes Default MaxTime DefaultTime MaxNodes MinNodes PriorityTier
    PriorityJobFactor Priority OverSubscribe Shared QOS AllowAccounts DenyAccounts AllowQOS DenyQOS
    State DefMemPerCPU DefMemPerNode MaxMemPerCPU MaxMemPerNode TRESBillingWeights PreemptMode LLN
    ExclusiveUser GraceTime
""")
USED_NODE: Final = words("""
    NodeName CPUs Procs Boards Sockets SocketsPerBoard CoresPerSocket ThreadsPerCore RealMemory
    Gres Feature Features Weight State
""")
_IDLE_PARTITION: Final = words("""
    Alternate AllocNodes AllowGroups CpuBind DefCpuPerGPU DisableRootJobs Hidden
    MaxCPUsPerNode ReqResv ResumeTimeout RootOnly SelectTypeParameters SuspendTime SuspendTimeout
    ExclusiveTopo PowerDownOnIdle ResumeRate MaxCPUsPerSocket Topology
""")
_MISSED_PARTITION: Final = words("""
    AllowGroups DefCpuPerGPU DisableRootJobs MaxCPUsPerNode MaxCPUsPerSocket ReqResv
    SelectTypeParameters SuspendTime ExclusiveTopo PowerDownOnIdle
""")
_IDLE_NODE: Final = words("""
    NodeAddr NodeHostname BcastAddr Port Reason TmpDisk CpuBind RestrictedCoresPerGPU
""")
_MISSED_NODE: Final = words("CoreSpecCount CPUSpecList MemSpecLimit")
IDLE_KEYS: Final = words("""
    AccountingStorageBackupHost AccountingStorageExternalHost AccountingStorageHost
    AccountingStorageLoc AccountingStorageParameters AccountingStoragePass AccountingStoragePort
    AccountingStorageTRES AccountingStorageType AccountingStorageUser AccountingStoreFlags
    AccountingStoreJobComment AcctGatherEnergyType AcctGatherFilesystemType
    AcctGatherInfinibandType AcctGatherInterconnectType AcctGatherNodeFreq AcctGatherProfileType
    AllowSpecResourcesUsage AuthAltParameters AuthAltTypes AuthInfo AuthType BackupAddr
    BackupController BatchStartTimeout BcastExclude BcastParameters CacheGroups CheckpointType
    CliFilterPlugins ClusterName CommunicationParameters ControlAddr ControlMachine CoreSpecPlugin
    CpuFreqDef CpuFreqGovernors CredType CryptoType DataParserParameters DebugFlags
    DependencyParameters DisableRootJobs EioTimeout Epilog EpilogSlurmctld EpilogTimeout
    ExtSensorsFreq ExtSensorsType FastSchedule FirstJobId GetEnvTimeout GpuFreqDef GresTypes
    GroupUpdateForce GroupUpdateTime HashPlugin HealthCheckInterval HealthCheckNodeState
    HealthCheckProgram InactiveLimit InteractiveStepOptions JobAcctGatherFrequency
    JobAcctGatherParams JobAcctGatherType JobCompHost JobCompLoc JobCompParams JobCompPass
    JobCompPassScript JobCompPort JobCompType JobCompUser JobContainerType JobCredentialPrivateKey
    JobCredentialPublicCertificate JobFileAppend KeepAliveTime KillOnBadExit LaunchParameters
    LaunchType LogTimeFormat MailDomain MailProg MaxBatchRequeue MaxDBDMsgs MaxJobId MaxStepCount
    MaxTasksPerNode MCSParameters MCSPlugin MessageTimeout MinJobAge MpiDefault MpiParams
    NamespaceType PidFile PlugStackConfig PluginDir PrEpParameters PrEpPlugins
    PrioritySiteFactorParameters PriorityParameters PrivateData ProctrackType Prolog
    PrologEpilogTimeout PrologFlags PrologSlurmctld PrologTimeout PropagatePrioProcess
    PropagateResourceLimits PropagateResourceLimitsExcept RebootProgram ReconfigFlags RequeueExit
    RequeueExitHold ResvEpilog ResvProlog RoutePlugin SchedulerLogFile SchedulerPort
    SchedulerRootFilter ScronParameters SlurmUser SlurmctldAddr SlurmctldDebug SlurmctldHost
    SlurmctldLogFile SlurmctldParameters SlurmctldPidFile SlurmctldPlugstack SlurmctldPort
    SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg SlurmctldSyslogDebug SlurmctldTimeout
    SlurmdDebug SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdPort SlurmdSpoolDir
    SlurmdSyslogDebug SlurmdTimeout SlurmdUser SlurmSchedLogFile SlurmSchedLogLevel SrunEpilog
    SrunPortRange SrunProlog StateSaveLocation SwitchParameters SwitchType TaskEpilog TaskPlugin
    TaskPluginParam TaskProlog TCPTimeout TLSParameters TLSType TmpFS TrackWCKey TreeWidth
    UnkillableStepProgram UnkillableStepTimeout UsePam UsePSS VSizeFactor Waittime WaitTime
    X11Parameters SuspendProgram ResumeProgram ResumeFailProgram SuspendExcNodes SuspendExcParts
    SuspendExcStates MaxArraySize MaxJobCount Version
""")
_IDLE_OPTIONS: Final = words("""
    bf_continue bf_yield_interval bf_yield_sleep bf_yield_rpc_cnt bf_yield_rpc_count
    max_rpc_cnt max_sched_time bf_max_time sched_min_interval batch_sched_delay spec_cores_first
    build_queue_timeout bf_hetjob_prio default_gbytes
    ignore_numa delay_boot disable_hetjob_steps enable_hetjob_steps enable_job_state_cache
    extra_constraints ignore_constraint_validation ignore_prefer_validation max_script_size
    no_backup_scheduling requeue_setup_env_fail salloc_wait_nodes sbatch_wait_nodes
    step_retry_count step_retry_time time_min_as_soft_limit wait_for_full_job_dependency
    kill_invalid_depend max_depend_depth bf_node_space_size bf_topopt_enable
    bf_topopt_iterations bf_topopt_timeout correspond_after_task_cnt
    allow_zero_lic bf_allow_magnetic_slot bf_licenses bf_running_job_reserve
    enable_user_top unavail_resources_as_limit preempt_send_user_signal
    nohold_on_prolog_fail pack_serial_at_end prioritize_on_overlap
    reduce_completing_frag whole_hetjob whole_pack cr_core_default_dist_block
""")
_MISSED_OPTIONS: Final = {
    "bf_max_time": "is a limit of the daemon's own seconds: cycles here are never cut short",
    "max_sched_time": "is a limit of the daemon's own seconds: passes here are never cut short",
    "bf_yield_interval": "is about the daemon's own seconds: cycles here are never interrupted",
    "pack_serial_at_end": "is not simulated: small jobs are placed like all others",
    "time_min_as_soft_limit": "is not simulated: there is one limit for each job",
    "bf_running_job_reserve": "is not simulated",
    "bf_licenses": "is not simulated: licenses are not counted",
    "reduce_completing_frag": "is not simulated: jobs leave at once",
    "max_rpc_cnt": "is about the daemon's load, which is not simulated",
    "default_gbytes": "is not applied: the memory of jobs is read as the trace gives it",
}
_FLAT: Final = frozenset({"", "topology/none", "topology/flat", "topology/default"})
_OFF: Final = frozenset({"", "0", "no", "none", "off", "false"})
_MISSED: Final[Mapping[str, str]] = {
    "completewait": "is not simulated: jobs leave their nodes at once",
    "licenses": "is not simulated: licenses are not counted",
    "burstbuffertype": "is not simulated: jobs do not stage data",
    "jobsubmitplugins": "may change jobs at submission; the trace has the submitted jobs",
    "suspendtime": "is not simulated: nodes are not switched off",
    "resumetimeout": "is not simulated: nodes are not switched off",
    "resumerate": "is not simulated: nodes are not switched off",
    "suspendtimeout": "is not simulated: nodes are not switched off",
    "suspendrate": "is not simulated: nodes are not switched off",
    "returntoservice": "is not simulated: failures and repairs are those of the scenario",
    "resvovertime": "is not simulated: jobs in reservations end at their limits",
    "overtimelimitresv": "is not simulated",
    "schedulertimeslice": "is not simulated: jobs do not take turns",
    "federationparameters": "is not simulated: there is one cluster",
    "prioritysitefactorplugin": "is not run: give its terms in column site_priority of the trace",
    "jobsizelimit": "is not simulated",
    "include": "names a file that was not read; paste its lines in its place",
    "nodeset": "is not read by the policy; the cluster takes it from the file",
    "downnodes": "is not read: give nodes that are down in the cluster",
    "powerparameters": "is not simulated: power is not capped",
    "powerplugin": "is not simulated: power is not capped",
    "topologyparam": "is not simulated",
}


# -- settings of sacctmgr
# --------------------------------------------------------------------------------------------------

NUMBERS_OF_QOS: Final = {
    "priority": "priority",
    "usagefactor": "usage_factor",
    "limitfactor": "limit_factor",
    "minpriothreshold": "min_priority",
    "minprioritythreshold": "min_priority",
    "usagethres": "usage_threshold",
    "usagethreshold": "usage_threshold",
}
TRES: Final = {
    "grptres": "grp_tres",
    "grptresmins": "grp_tres_mins",
    "grptresrunmins": "grp_tres_run_mins",
    "maxtres": "max_tres",
    "maxtresperjob": "max_tres",
    "maxtrespj": "max_tres",
    "maxtrespernode": "max_tres_per_node",
    "maxtrespn": "max_tres_per_node",
    "mintres": "min_tres",
    "mintresperjob": "min_tres",
    "maxtresmins": "max_tres_mins",
    "maxtresminsperjob": "max_tres_mins",
    "maxtrespu": "max_tres_pu",
    "maxtresperuser": "max_tres_pu",
    "maxtrespa": "max_tres_pa",
    "maxtresperaccount": "max_tres_pa",
}
ONE_TRES: Final = {
    "grpcpus": ("grp_tres", "cpu"),
    "grpnodes": ("grp_tres", "node"),
    "grpmem": ("grp_tres", "mem"),
    "grpcpumins": ("grp_tres_mins", "cpu"),
    "grpcpurunmins": ("grp_tres_run_mins", "cpu"),
    "maxcpus": ("max_tres", "cpu"),
    "maxcpusperjob": ("max_tres", "cpu"),
    "maxnodes": ("max_tres", "node"),
    "maxnodesperjob": ("max_tres", "node"),
    "mincpus": ("min_tres", "cpu"),
    "mincpusperjob": ("min_tres", "cpu"),
    "maxcpumins": ("max_tres_mins", "cpu"),
    "maxcpuminsperjob": ("max_tres_mins", "cpu"),
    "maxcpusperuser": ("max_tres_pu", "cpu"),
    "maxcpuspu": ("max_tres_pu", "cpu"),
    "maxnodesperuser": ("max_tres_pu", "node"),
    "maxnodespu": ("max_tres_pu", "node"),
}
COUNTS: Final = {
    "grpjobs": "grp_jobs",
    "grpsubmit": "grp_submit",
    "grpsubmitjobs": "grp_submit",
    "maxjobs": "max_jobs",
    "maxjobspu": "max_jobs_pu",
    "maxjobsperuser": "max_jobs_pu",
    "maxjobspa": "max_jobs_pa",
    "maxjobsperaccount": "max_jobs_pa",
    "maxsubmit": "max_submit",
    "maxsubmitjobs": "max_submit",
    "maxsubmitpu": "max_submit_pu",
    "maxsubmitjobspu": "max_submit_pu",
    "maxsubmitjobsperuser": "max_submit_pu",
    "maxsubmitpa": "max_submit_pa",
    "maxsubmitjobspa": "max_submit_pa",
    "maxsubmitjobsperaccount": "max_submit_pa",
}
WALLS: Final = {
    "grpwall": "grp_wall_s",
    "maxwall": "max_wall_s",
    "maxwalldurationperjob": "max_wall_s",
    "maxwallpj": "max_wall_s",
}


LISTS: Final = {"flags": "flags", "preempt": "preempts"}
"""Settings of a quality of service that are lists -> their attributes."""
NOT_LIMITS: Final = NUMBERS_OF_QOS.keys() | words("""
    account accounts adminlevel cluster clusters defaultaccount defaultqos description fairshare
    flags gracetime organization parent partition preempt preemptexempttime preemptmode shares
""")
"""Settings that are not limits: read elsewhere, or descriptive."""
IDLE_OF_ACCOUNTS: Final = words("""
    coordinator coordinators defaultwckey descr email id newname rawusage wckey wckeys
""")
"""Settings that are kept as written and do not change results."""
_WAITS: Final = "is not simulated: all waiting jobs gain by their age"
_RUN_MINS: Final = "is not simulated: only GrpTRESRunMins is"
MISSED_OF_ACCOUNTS: Final[Mapping[str, str]] = {
    "qos": "is not simulated: jobs may ask for any quality of service",
    "qoslevel": "is not simulated: jobs may ask for any quality of service",
    "grpjobsaccrue": _WAITS,
    "maxjobsaccrue": _WAITS,
    "maxjobsaccruepa": _WAITS,
    "maxjobsaccrueperaccount": _WAITS,
    "maxjobsaccruepu": _WAITS,
    "maxjobsaccrueperuser": _WAITS,
    "maxtresrunmins": _RUN_MINS,
    "maxtresrunminspa": _RUN_MINS,
    "maxtresrunminsperaccount": _RUN_MINS,
    "maxtresrunminspu": _RUN_MINS,
    "maxtresrunminsperuser": _RUN_MINS,
}
HOLDERS: Final = {"qos", "account", "accounts", "user", "users"}


def _partial_support(key: str, value: str) -> str:
    """Return what of a supported key's value is not simulated; "" = all is."""
    if key == "preemptmode" and {"suspend", "gang"} & set(value.split(",")) == {"suspend"}:
        return "lacks GANG, without which Slurm does not suspend jobs: none is suspended"
    if key == "priorityflags" and "depth_oblivious" in value:
        return "has DEPTH_OBLIVIOUS, which is not simulated: fair share is the classic one"
    if key == "topologyplugin" and value not in {"topology/tree", *_FLAT}:
        return "is not simulated: nodes are chosen by runs of neighbours"
    if key == "enforcepartlimits" and value not in {"yes", "no", "all", "any"}:
        return "is none of ALL, ANY and NO: jobs are never refused for it"
    return ""


def classify_key(key: str, value: str) -> tuple[str, str]:
    """Classify a global slurm.conf key as USED, IDLE or MISSED; return class and reason."""
    low, off = key.lower(), value.strip().lower() in _OFF
    if why := _partial_support(low, value.lower()):
        return MISSED, why
    if low in USED_KEYS:
        return USED, ""
    if low in IDLE_KEYS or (low in _MISSED and off):
        return IDLE, ""
    if low in _MISSED:
        return MISSED, _MISSED[low]
    return MISSED, "is not a key that is known here, so it has no effect"


def class_of_option(key: str, value: str) -> tuple[str, str]:
    """Classify an option of ``SchedulerParameters``; return its class and explanation."""
    low = key.lower()
    if low in USED_OPTIONS:
        return USED, ""
    if low in _MISSED_OPTIONS and value.strip() != "0":
        return MISSED, _MISSED_OPTIONS[low]
    if low in _IDLE_OPTIONS:
        return IDLE, ""
    return MISSED, "is not an option that is known here, so it has no effect"


def class_of_part(kind: str, key: str, value: str) -> tuple[str, str]:
    """Classify a key of a ``kind`` line, partition or node; return class and explanation."""
    low = key.lower()
    used, idle, missed = {
        "partition": (USED_PARTITION, _IDLE_PARTITION, _MISSED_PARTITION),
        "node": (USED_NODE, _IDLE_NODE, _MISSED_NODE),
    }[kind]
    if low in missed and value.strip().lower() not in {*_OFF, "all", "unlimited", "infinite"}:
        return MISSED, "is not simulated"
    if low in {"oversubscribe", "shared"} and value.upper().startswith(("YES:", "FORCE")):
        if value.upper() in {"FORCE:1", "YES:1"}:
            return USED, ""
        return MISSED, "is simulated as one job per core only"
    if low in used:
        return USED, ""
    if low in idle or low in missed:
        return IDLE, ""
    return MISSED, f"is not a key of a {kind} that is known here, so it has no effect"
