from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pandas as pd
import pytest
from plotly.offline import get_plotlyjs

from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.params import Spec
from sim.trace import Trace
from tests.trainyard.results.test_exports import finished
from trainyard.results import outcomes
from trainyard.results.outcomes import StudyResults
from trainyard.store import Store
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.views.markup import MAX_ROWS, html_frame
from trainyard.views.report.page import offline_html

CREATED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOSTILE = [
    "<script>window.hacked=1</script>",
    "</script><img src=x onerror=alert(1)>",
    "a" * 10_000,
    "\u202egnp.exe",
    "nul\x00\x1b",
    "%{x} $x$ **b** {{y}}",
    "🚂",
]


class Page(HTMLParser):
    """What a browser would make of a file: elements, what they would load, and the contents of
    scripts.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words: list[str] = []
        self._running = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._running = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._running = False

    def handle_data(self, data: str) -> None:
        if self._running:
            self.scripts.append((self.tags[-1][1], data))
        else:
            self.words.append(data)

    def block(self, name: str) -> str:
        return next(text for attributes, text in self.scripts if attributes.get("id") == name)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def shown(store: Store) -> StudyResults:
    return finished(new_study.sample_study("tiny"), store)


@pytest.fixture(scope="module")
def text(shown: StudyResults, store: Store) -> str:
    return offline_html(shown, store, created=CREATED)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_nothing_is_loaded_from_anywhere(page: Page, text: str) -> None:
    loading = {"src", "href", "srcset", "data", "action", "poster", "background"}
    assert {
        (tag, name)
        for tag, attributes in page.tags
        for name, value in attributes.items()
        if name in loading and not (value or "").startswith("#")
    } == set()
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & {
        tag for tag, _ in page.tags
    }
    assert not re.search(r"@import|url\(", text[: text.index("</style>")])
    assert text.count(get_plotlyjs()) == 1
    assert len(text.encode()) < 5_500_000


def test_every_link_of_the_contents_leads_to_a_section(page: Page) -> None:
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = [attributes["href"] or "" for tag, attributes in page.tags if tag == "a"]
    assert len(links) >= 8
    assert {link.removeprefix("#") for link in links} <= ids
    every = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(every) == len(ids)


def test_only_its_own_two_scripts_may_run(page: Page) -> None:
    policy = next(
        attributes["content"] or ""
        for tag, attributes in page.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    running = [code for attributes, code in page.scripts if "type" not in attributes]
    hashes = {
        f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"
        for code in running
    }
    assert policy.startswith("default-src 'none'; ")
    allowed = re.search(r"script-src ([^;]*);", policy)
    assert allowed is not None
    assert set(allowed[1].split()) == hashes
    assert len(running) == 2
    assert [
        name for _, attributes in page.tags for name in attributes if name.startswith("on")
    ] == []


def test_every_figure_has_its_finding_its_data_and_its_pictures(page: Page) -> None:
    figures = json.loads(page.block("figures"))
    plots = {
        attributes["id"]: attributes["aria-label"]
        for _, attributes in page.tags
        if attributes.get("class") == "plot"
    }
    assert set(plots) == set(figures)
    assert {"queue", "jct_cdf", "parts", "allocation-1"} <= set(figures)
    frames = [attributes for tag, attributes in page.tags if tag == "figure"]
    assert [(frame["role"], frame["aria-label"]) for frame in frames] == [
        ("figure", alt) for alt in plots.values()
    ]
    assert all(alt and alt.endswith(".") for alt in plots.values())
    buttons = {
        (attributes["data-plot"], attributes["data-format"])
        for tag, attributes in page.tags
        if tag == "button" and "data-plot" in attributes
    }
    assert buttons == {(name, form) for name in figures for form in ("png", "svg")}
    assert page.words.count("Data") == len(figures)


def test_it_says_what_was_asked_found_and_how_to_repeat_it(
    page: Page, shown: StudyResults, store: Store
) -> None:
    said = outcomes.report(shown, store)
    assert said is not None
    words = "\n".join(page.words)
    sentences = [
        said.headline,
        said.facts,
        said.trust.sentence() if said.trust else "",
        "python -m trainyard report --scenario trainyard-scenario.json",
    ]
    assert [sentence for sentence in sentences if sentence not in words] == []
    assert Study.from_json(json.loads(page.block("scenario"))) == shown.study
    for entry in (run for runs in shown.entries for run in runs):
        assert entry.key in words
        assert entry.provenance["digest"] in words
    assert f"results {shown.entries[0][0].provenance['versions']['results']}" in words
    assert "2026-01-02 03:04:05 UTC" in words
    heads = (
        "Policies side by side",
        "How jobs ended",
        "Against the recorded history",
        "Trace",
        "Scenario",
        "Provenance",
        "Limits of the model",
    )
    assert [head for head in heads if head not in page.words] == []


def test_equal_results_give_equal_bytes_but_for_the_time(
    text: str, shown: StudyResults, store: Store
) -> None:
    assert offline_html(shown, store, created=CREATED) == text
    later = offline_html(shown, store, created=CREATED.replace(year=2027))
    assert later != text
    assert later.replace("2027-01-02", "2026-01-02") == text


def test_a_report_of_an_overload_says_it_first_and_what_to_do(store: Store) -> None:
    week = new_study.with_cluster(new_study.sample_study("week"), Cluster.parse("1x8:v100"))
    found = Page(
        offline_html(
            finished(new_study.with_policies(week, (Spec("fifo"), Spec("srtf"))), store),
            store,
            created=CREATED,
        )
    )
    words = "\n".join(found.words)
    assert "9.4 times" in words
    ways = (
        "What to do: Fit the cluster to the jobs: 64 GPUs (--cluster 4x8:a100,4x8:v100);"
        " Lower the load until jobs request 85 % of GPU time (--set trace.load=0.09068)"
    )
    assert ways in words
    assert not re.search(r"cuts|raises|[−+]\d[\d.]* %", words)
    assert "The same question for other goals" not in words


def test_a_report_says_who_stands_in_for_the_baseline(store: Store) -> None:
    tiny = new_study.sample_study("tiny")
    finished(replace(tiny, allocators=(Spec("fifo"), Spec("srtf"))), store)
    asked = replace(
        tiny, allocators=(Spec("greedy_elastic"), Spec("fifo"), Spec("srtf")), baseline=0
    )
    words = Page(offline_html(outcomes.gather(asked, store), store, created=CREATED)).words
    assert "Compared with FIFO: the chosen baseline Greedy elastic cannot run here." in words
    assert "Greedy elastic (baseline chosen, cannot run here); FIFO (baseline); SRTF" in words


def test_without_a_complete_policy_there_is_nothing_to_report(store: Store) -> None:
    study = new_study.sample_study("tiny")
    missing = outcomes.gather(replace(study, base=replace(study.base, seed=77)), store)
    with pytest.raises(ParameterError, match="Run it first"):
        offline_html(missing, store, created=CREATED)


def test_what_was_changed_is_said(store: Store) -> None:
    study = new_study.sample_study("tiny")
    trace = replace(study.base.trace, from_s=600.0, load=2.0, sample=5, anonymise=True)
    measure = replace(study.base.measure, to_s=3600.0)
    base = replace(study.base, trace=trace, horizon_s=7200.0, measure=measure)
    found = finished(replace(study, base=base, allocators=(Spec("fifo"),)), store)
    words = Page(offline_html(found, store, created=CREATED)).words
    assert (
        "jobs submitted from 10 min to the end, load × 2, 5 jobs drawn at random (seed 0), names"
        " and ids replaced by numbers" in words
    )
    assert words[words.index("Measured") + 1] == "to s = 3600"
    assert words[words.index("Horizon") + 1] == "2 h"
    assert words[words.index("Ends") + 1] == "when all jobs are settled"


def test_policies_without_a_result_are_named(shown: StudyResults, store: Store) -> None:
    part = replace(shown, entries=(*shown.entries[:-1], ()))
    assert f"Without a result, so not shown: {shown.titles[-1]}." in offline_html(
        part, store, created=CREATED
    )


@pytest.fixture(scope="module")
def hostile(store: Store) -> Page:
    jobs = len(HOSTILE)
    frame = pd.DataFrame(
        {
            "job_id": HOSTILE,
            "submit_time_s": [10.0 * at for at in range(jobs)],
            "num_gpus": [1] * jobs,
            "duration_s": [100.0] * jobs,
            "user": HOSTILE[::-1],
            "vc": HOSTILE,
            "start_time_s": [10.0 * at for at in range(jobs)],
        }
    )
    account = {
        "format": "native",
        "file": HOSTILE[1],
        "read": jobs + 1,
        "used": jobs,
        "dropped": 1,
        "altered": 0,
        "guesses": [HOSTILE[0]],
        "warnings": [HOSTILE[1]],
    }
    account["reasons"] = [{"action": "dropped", "reason": f"bad cell {HOSTILE[0]}", "rows": 1}]
    digest = store.put_trace(Trace.of(frame, name=HOSTILE[1]), account)
    cluster = Cluster.parse("1x2:v100,1x2:a100")
    groups = tuple(
        replace(group, name=name) for group, name in zip(cluster.groups, HOSTILE, strict=False)
    )
    base = Scenario(
        TraceSpec(f"store:{digest}"),
        replace(cluster, groups=groups, name=HOSTILE[1]),
        Spec("fifo"),
        name=HOSTILE[0],
    )
    found = finished(Study(base, (Spec("fifo"), Spec("srtf"))), store)
    return Page(offline_html(found, store, created=CREATED))


def test_names_from_outside_stay_names(hostile: Page, page: Page) -> None:
    assert len([tag for tag, _ in hostile.tags if tag == "script"]) == 5
    assert {tag for tag, _ in hostile.tags} <= {tag for tag, _ in page.tags} | {
        "ul",
        "li",
        "small",
        "td",
    }
    assert [
        name
        for _, attributes in hostile.tags
        for name in attributes
        if name.startswith("on") or name == "src"
    ] == []
    words = "\n".join(hostile.words)
    assert HOSTILE[0] in words
    assert not re.search("[\x00\x1b\u202a-\u202e\u2066-\u2069]", words)
    assert "used + 1 left out = 8 read" in words
    longest = max(re.findall("a{100,}", words), key=len)
    assert len(longest) < 2100
    assert Study.from_json(json.loads(hostile.block("scenario"))).base.name == HOSTILE[0]


@pytest.mark.parametrize(("rows", "told"), [(3, 3), (MAX_ROWS, MAX_ROWS), (MAX_ROWS + 1, 101)])
def test_long_tables_are_thinned_and_say_so(rows: int, told: int) -> None:
    made = html_frame(pd.DataFrame({"t": range(rows), "x": [float("nan")] * rows}))
    assert made.count('<th scope="row">') == told
    assert (f"{told:,} of {rows:,} rows, evenly spaced" in made) == (told < rows)
    assert "<td>–</td>" in made


def test_two_columns_may_be_named_alike() -> None:
    assert html_frame(pd.DataFrame([[1, 2]], columns=["a", "a"])).count("<td>2</td>") == 1
