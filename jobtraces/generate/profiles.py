"""Published statistics of real traces, the input of `jobtraces.generate.generate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

HOUR_S: Final = 3600
DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class SizeGroup:
    """GPU counts that a published histogram combines.

    Parameters
    ----------
    jobs : float, % of jobs
    gpu_time : float, % of GPU time
    split : mapping of GPU count to weight
        Weights of the GPU counts in the group; any sum.
    """

    jobs: float
    gpu_time: float
    split: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class WorkloadProfile:
    """Statistics of a real (or synthetic) trace that a generated workload keeps.

    Parameters
    ----------
    title : str
        Name for the user.
    source : str
        Source of the figures; assumptions of ours are named.
    jobs_per_day : float
        Published rate, used if neither load nor days are given.
    hours : tuple of 24 floats
        Submissions by hour of the local day, in any unit.
    weekdays : tuple of 7 floats
        Submissions by weekday from Monday, in any unit.
    noise : float
        Standard deviation of the logarithm of hourly noise; chosen to match `dispersion` at the
        published rate.
    dispersion : float
        Published variance / mean of the hourly counts.
    durations : tuple of (seconds, %)
        Cumulative distribution of the run time of all GPU jobs.
    sizes : tuple of SizeGroup
    states : tuple of (rank, failed, cancelled)
        Chance of each outcome at a rank (0 to 1) of the run time, linear in between; other jobs
        complete.
    users : int
        Number of users.
    zipf : float
        The k-th user submits in proportion to k ** -zipf.
    vcs : mapping of name to weight
    repeats : float
        Share of submissions that repeat the previous job within the same second.
    cron : float
        Share of submissions by one user's script at fixed intervals (every 600 s in a VC of Philly;
        here the interval follows from the share).
    epoch : str
        Local time of the first submission, a Monday at midnight.
    cluster : str
        Default cluster, in the form of `Cluster.parse`.
    cap_s : float, seconds
        Longest run time; the distribution is truncated here. Two days by default, as in derived
        lists of the Venus and PAI jobs: with the full tail (24 days) a workload of 100,000 jobs
        never leaves its warm-up. This excludes 2.5 % of Philly's jobs, 2.0 % of Venus', 0.2 % of
        PAI's.
    largest_share : float
        Jobs larger than this share of the largest GPU type are redrawn.
    models : mapping of name to (batch sizes, most GPUs)
        None = the source has no models.
    """

    title: str
    source: str
    jobs_per_day: float
    hours: tuple[float, ...]
    weekdays: tuple[float, ...]
    noise: float
    dispersion: float
    durations: tuple[tuple[float, float], ...]
    sizes: tuple[SizeGroup, ...]
    states: tuple[tuple[float, float, float], ...]
    users: int
    zipf: float
    vcs: Mapping[str, float]
    repeats: float
    cron: float
    epoch: str
    cluster: str
    cap_s: float = 2 * DAY_S
    largest_share: float = 0.25
    models: Mapping[str, tuple[tuple[int, ...], int]] | None = None


# Run times of all GPU jobs, % at most 2**i seconds, read off the vector figures of
# InternLM/AcmeTrace (Philly, PAI; CC-BY-4.0) and of S-Lab-System-Group/HeliosArtifact (Venus; MIT,
# data CC-BY-4.0) to about 0.1 point. The x of the figures is 2**i to 0.1 %.
_X: Final = tuple(float(2**i) for i in range(22))
_PHILLY_CDF: Final = (
    0.03, 0.08, 0.17, 0.82, 3.62, 8.42, 18.88, 26.98, 31.5, 36.27, 54.9, 67.45, 79.26, 84.58, 90.26, 92.69, 94.84, 96.93, 98.37, 99.29, 99.78, 99.93,  # noqa: E501
)  # fmt: skip
_VENUS_CDF: Final = (
    1.91, 2.79, 4.07, 6.39, 9.65, 14.78, 23.24, 37.66, 55.07, 65.16, 72.87, 78.54, 83.68, 86.91, 89.66, 92.34, 95.43, 97.47, 98.91, 99.66, 99.95, 100.0,  # noqa: E501
)  # fmt: skip
_PAI_CDF: Final = (
    0.08, 0.08, 0.12, 0.43, 2.99, 11.87, 21.05, 28.94, 39.61, 50.89, 60.77, 69.82, 78.49, 87.1, 93.16, 97.03, 99.0, 99.67, 99.93, 99.97, 99.98, 100.0,  # noqa: E501
)  # fmt: skip

# Hourly GPU submissions by local hour (HeliosArtifact figures), and the Philly profile measured on
# the 82,247 jobs of the Pollux list.
_PHILLY_HOURS: Final = (
    2.7,
    2.5,
    3.3,
    3.4,
    2.8,
    3.2,
    3.9,
    3.7,
    4.5,
    4.5,
    4.7,
    4.5,
    4.6,
    5.1,
    3.2,
    3.7,
    6.1,
    8.2,
    6.0,
    5.6,
    3.5,
    3.5,
    4.0,
    3.0,
)
_VENUS_HOURS: Final = (
    26,
    19,
    17,
    11,
    8,
    6,
    5,
    7,
    11,
    23,
    37,
    43,
    34,
    37,
    45,
    48,
    50,
    50,
    37,
    38,
    39,
    39,
    33,
    30,
)
_HELIOS_HOURS: Final = (
    330,
    307,
    247,
    217,
    206,
    202,
    199,
    186,
    204,
    297,
    408,
    451,
    436,
    445,
    482,
    520,
    543,
    483,
    399,
    436,
    477,
    446,
    414,
    398,
)

_PHILLY: Final = WorkloadProfile(
    title="Philly-like (Microsoft, 2017)",
    source=(
        "Run times: AcmeTrace figures, all GPU jobs. GPUs and GPU time: the same. Arrivals, hours,"
        " weekdays: measured on the Pollux list of passed jobs. States: AcmeTrace summary of"
        " 112,956 GPU jobs. Users and VC sizes: Jeon et al., ATC'19 and the derived lists. Own: GPU"
        " counts between powers of two."
    ),
    jobs_per_day=755,
    hours=_PHILLY_HOURS,
    weekdays=(20.7, 19.6, 10.9, 9.8, 11.6, 13.8, 13.7),
    noise=2.2,
    dispersion=161,
    durations=tuple(zip(_X, _PHILLY_CDF, strict=True)),
    sizes=(
        SizeGroup(82.4, 16.4, {1: 1}),
        SizeGroup(2.1, 3.0, {2: 1}),
        SizeGroup(7.5, 18.8, {3: 2, 4: 98}),
        SizeGroup(6.9, 49.8, {5: 1, 6: 1, 8: 98}),
        SizeGroup(0.9, 9.2, {12: 5, 16: 95}),
        SizeGroup(0.2, 2.8, {24: 10, 32: 60, 64: 22, 128: 8}),
    ),
    states=(
        (0.0, 0.62, 0.02),
        (0.3, 0.48, 0.04),
        (0.5, 0.22, 0.05),
        (0.9, 0.16, 0.16),
        (0.97, 0.35, 0.3),
        (1.0, 0.48, 0.36),
    ),
    users=136,
    zipf=1.18,
    vcs={
        "6214e9": 64,
        "b436b2": 64,
        "ee9e8c": 64,
        "7f04ca": 32,
        "6c71a0": 32,
        "0e4a51": 32,
        "11cb48": 16,
        "e13805": 16,
        "2869ce": 16,
        "ed69ec": 8,
        "103959": 8,
    },
    repeats=0.12,
    cron=0.04,
    epoch="2017-10-02T00:00:00",
    cluster="512x8:p100",
)
_VENUS: Final = WorkloadProfile(
    title="Venus-like (SenseTime Helios, 2020)",
    source=(
        "Run times, GPUs, GPU time, hours: HeliosArtifact figures for Venus. Weekdays, burstiness,"
        " users: measured on the Venus lists. States: Helios summary of 125,303 GPU jobs. Own: GPU"
        " counts between powers of two, sizes of the VCs."
    ),
    jobs_per_day=696,
    hours=_VENUS_HOURS,
    weekdays=(14.7, 15.3, 18.3, 17.3, 13.6, 9.8, 11.1),
    noise=0.95,
    dispersion=39,
    durations=tuple(zip(_X, _VENUS_CDF, strict=True)),
    sizes=(
        SizeGroup(51.8, 4.6, {1: 1}),
        SizeGroup(5.6, 3.4, {2: 1}),
        SizeGroup(7.4, 4.8, {3: 3, 4: 97}),
        SizeGroup(25.2, 29.3, {5: 1, 7: 1, 8: 98}),
        SizeGroup(4.1, 16.2, {16: 1}),
        SizeGroup(3.6, 25.1, {24: 25, 32: 75}),
        SizeGroup(1.0, 7.5, {40: 30, 48: 30, 56: 20, 64: 20}),
        SizeGroup(1.3, 9.1, {128: 70, 256: 30}),
    ),
    states=(
        (0.0, 0.55, 0.18),
        (0.3, 0.3, 0.25),
        (0.6, 0.13, 0.28),
        (0.9, 0.1, 0.32),
        (1.0, 0.1, 0.36),
    ),
    users=106,
    zipf=1.07,
    vcs={"vc1": 30, "vc2": 20, "vc3": 15, "vc4": 12, "vc5": 9, "vc6": 7, "vc7": 4, "vc8": 3},
    repeats=0.1,
    cron=0.02,
    epoch="2020-06-01T00:00:00",
    cluster="133x8:v100",
)
_PAI: Final = WorkloadProfile(
    title="PAI-like (Alibaba, 2020)",
    source=(
        "Run times: AcmeTrace figures. GPUs per gang, burstiness, rate: measured on terminated"
        " tasks of the task table, fractions rounded up to one GPU. Machines: the machine table."
        " Own: hours (from the four Helios clusters), weekdays equal, GPU counts the"
        " source does not list, users, VCs."
    ),
    jobs_per_day=11_520,
    hours=_HELIOS_HOURS,
    weekdays=(1, 1, 1, 1, 1, 1, 1),
    noise=0.28,
    dispersion=100,
    durations=tuple(zip(_X, _PAI_CDF, strict=True)),
    sizes=(
        SizeGroup(
            92.4, 26.0, {1: 770, 2: 31, 3: 12, 4: 14, 5: 20, 6: 10, 8: 12, 10: 40, 12: 7, 16: 8}
        ),
        SizeGroup(7.6, 74.0, {20: 21, 30: 14, 40: 10, 50: 14, 100: 12, 200: 4, 400: 1}),
    ),
    states=((0.0, 0.5, 0.02), (0.3, 0.33, 0.03), (0.6, 0.25, 0.05), (1.0, 0.2, 0.1)),
    users=1_200,
    zipf=1.0,
    vcs={"search": 4, "recommend": 3, "ads": 2, "vision": 1},
    repeats=0.2,
    cron=0.02,
    epoch="2020-07-06T00:00:00",
    cluster="798x2:p100,497x2:t4,239x8:v100",
)
_WEEK: Final = WorkloadProfile(
    title="A teaching week",
    source=(
        "Made for teaching: hours of Venus, run times of Philly stretched to the wanted load and"
        " truncated at 18 hours, weekdays, GPU counts and models of our own (the model names of"
        " Gavel's throughput tables, drawn at random as Gavel did for the Philly jobs)."
    ),
    jobs_per_day=171.4,
    hours=_VENUS_HOURS,
    weekdays=(15.5, 15.5, 15.5, 15.5, 14.5, 12.0, 11.5),
    noise=0.6,
    dispersion=6,
    durations=tuple(zip(_X, _PHILLY_CDF, strict=True)),
    sizes=(
        SizeGroup(62.0, 26.0, {1: 1}),
        SizeGroup(12.0, 10.0, {2: 1}),
        SizeGroup(14.0, 22.0, {3: 3, 4: 97}),
        SizeGroup(10.5, 33.0, {6: 3, 8: 97}),
        SizeGroup(1.5, 9.0, {12: 1, 16: 2}),
    ),
    states=((0.0, 0.45, 0.02), (0.3, 0.25, 0.04), (0.6, 0.1, 0.06), (1.0, 0.12, 0.2)),
    users=24,
    zipf=0.9,
    vcs={"vision": 3, "language": 3, "speech": 2},
    repeats=0.1,
    cron=0.02,
    epoch="2024-01-01T00:00:00",
    cluster="4x8:a100,4x8:v100",
    cap_s=64_800,
    largest_share=0.5,
    models={
        "ResNet-18": ((32, 64, 128, 256), 16),
        "ResNet-50": ((16, 32, 64, 128), 16),
        "Transformer": ((16, 32, 64, 128), 16),
        "LM": ((5, 10, 20, 40, 80), 16),
        "Recommendation": ((512, 1024, 2048, 4096), 16),
        "CycleGAN": ((1,), 1),
        "A3C": ((4,), 1),
    },
)

PROFILES: Final[Mapping[str, WorkloadProfile]] = {
    "philly": _PHILLY,
    "venus": _VENUS,
    "pai": _PAI,
    "week": _WEEK,
}

# Share of jobs whose run time is at most this share of their time limit: MIT Supercloud (run /
# limit 0.001 at 25 %, 0.013 at 50 %, 0.21 at 75 %, 1.00 at 90 %).
LIMIT_RATIO: Final = (
    (0.0, 0.0005),
    (0.25, 0.001),
    (0.5, 0.013),
    (0.75, 0.21),
    (0.9, 1.0),
    (1.0, 1.0),
)
NO_LIMIT: Final = 0.4
LIMITS_S: Final = (
    1800,
    3600,
    7200,
    14_400,
    28_800,
    43_200,
    86_400,
    172_800,
    259_200,
    432_000,
    604_800,
    1_209_600,
)
