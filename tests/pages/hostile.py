"""Names that would do harm if a page took them for anything but names, and what a page would show
of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from typing import Any, Final

import pandas as pd
from streamlit.testing.v1 import AppTest

from sim.cluster import Cluster, GpuType, NodeGroup
from sim.limits import MAX_NAME_LENGTH
from sim.params import Spec
from sim.trace import Trace
from trainyard.store import Store
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study

SCRIPT: Final = "<script>window.hacked=1</script>"
IMAGE: Final = "</script><img src=x onerror=window.hacked=1>"
NAMES: Final = (
    *(
        SCRIPT,
        IMAGE,
        "x" * 10_000,
        "\u202egnp.exe\u2066",
        "nul\x00\x1b[31m",
        "%{x}%{customdata}",
        "$\\frac{1}{2}$",
        "🚂 :red[a] :material/home:",
    ),
    *(
        "**b** _q_ `c` [l](javascript:window.hacked=1)",
        "two\nlines\r\n# head",
        "=1+1",
        "javascript:window.hacked=1",
    ),
)
UNSEEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
LONGEST: Final = 3000
_LITERAL: Final = ("default", "alt", "options", "raw_value", "value")
"""Shown as text by the browser, never as Markdown or HTML."""
_MARKDOWN: Final = {"body", "label", "help", "markdown", "text", "title", "caption"}


def study(store: Store) -> Study:
    """Two policies on jobs, users, queues, models, GPU types, nodes and a cluster with hostile
    names.
    """
    count = len(NAMES)
    types = [name.lower()[:MAX_NAME_LENGTH] for name in NAMES[:4]]
    frame = pd.DataFrame(
        {
            "job_id": NAMES,
            "submit_time_s": [600.0 * at for at in range(count)],
            "num_gpus": [4] * count,
            "duration_s": [7200.0] * count,
            "start_time_s": [600.0 * at for at in range(count)],
            "gpu_type": ["", *types, *[""] * (count - 5)],
            **{
                column: list(NAMES[at:] + NAMES[:at])
                for at, column in enumerate(("user", "vc", "model", "partition"))
            },
        }
    )
    reasons = [
        {"action": "dropped", "reason": f"the id {name} occurs twice", "rows": 1}
        for name in NAMES[:3]
    ]
    account = {
        "format": "native",
        "title": IMAGE,
        "file": SCRIPT,
        "read": count + 3,
        "used": count,
        "dropped": 3,
        "altered": 0,
    }
    digest = store.put_trace(
        Trace.of(frame, name=IMAGE),
        account | {"guesses": list(NAMES[:2]), "warnings": list(NAMES[:2]), "reasons": reasons},
    )
    groups = tuple(
        NodeGroup(1, 4, kind, partitions=(), name=name[:MAX_NAME_LENGTH])
        for kind, name in zip(types, NAMES, strict=False)
    )
    cluster = Cluster(
        groups, tuple(GpuType(kind, 1.0 + at, 1.0) for at, kind in enumerate(types)), name=SCRIPT
    )
    base = Scenario(
        TraceSpec(f"store:{digest}"),
        cluster,
        Spec("fifo"),
        estimator=Spec.of("noisy", sigma=0.5),
        name=IMAGE,
    )
    return Study(base, (Spec("fifo"), Spec("srtf"), Spec("gavel")))


def harms(app: AppTest) -> list[str]:
    """What on a page would be run, taken for markup, or shown otherwise than it is; with the
    element it is in.
    """
    found = []
    for element, field, text in texts(app):
        where = f"{element}.{field}: {text[:150]!r}"
        if UNSEEN.search(text) or (
            len(text) > LONGEST * (10 if element == "plotly_chart" else 1)
            and re.search("x{200}", text)
        ):
            found.append(f"unseen or long, {where}")
        if element == "html":
            found += [f"{tag}, {where}" for tag in _tags(text)]
        elif (
            # Scripts of components write their data as text: see `test_scripts_write_text`.
            element not in ("code", "bidi_component")
            and field not in _LITERAL
            and re.search(r"(?<!\\)<(/?script|img)", text)
        ):
            found.append(f"markup, {where}")
        elif (
            element != "plotly_chart"
            and field in _MARKDOWN
            and re.search(r"(?<![\\:\u2060]):red\[|(?<!\\)\[l\]\(|(?<!\\)\*\*b\*\*", text)
        ):
            found.append(f"markdown, {where}")
    return found


def texts(app: AppTest) -> Iterator[tuple[str, str, str]]:
    """Yield every text that is sent to the browser, but for the rows of tables, which it draws as
    pictures: element, field, text.
    """
    waiting: list[Any] = [app.main]
    while waiting:
        node = waiting.pop()
        waiting += list(getattr(node, "children", {}).values())
        proto = getattr(node, "proto", None)
        if proto is None:
            continue
        kind = getattr(node, "type", "")
        if kind in ("arrow_data_frame", "dataframe"):
            continue
        for name, text in _fields(proto):
            if kind == "plotly_chart" and name == "spec":
                yield from ((kind, "figure", one) for one in _strings(json.loads(text)))
            else:
                yield kind, name, text


def _fields(message: Any) -> Iterator[tuple[str, str]]:
    """Yield name and text of every field of a message to the browser, but for those that nobody
    reads.
    """
    for field, value in message.ListFields():
        for one in (
            value
            if isinstance(value, Iterable) and not isinstance(value, (str, bytes))
            else [value]
        ):
            if hasattr(one, "ListFields"):
                yield from _fields(one)
            elif isinstance(one, str) and field.name not in (
                "id",
                "url",
                "key",
                "user_key",
                "group_id",
            ):
                yield field.name, one


def _strings(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, (dict, list)):
        for name, value in data.items() if isinstance(data, dict) else enumerate(data):
            if name not in ("bdata", "uirevision"):
                yield from _strings(value)


class _Tags(HTMLParser):
    """Elements and attributes that would run what was put into a name."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = tag
        self.found += [
            f"{tag} {name}"
            for name, value in attrs
            if name in ("src", "href") or name.startswith("on") or tag in ("img", "iframe")
        ]

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open in ("script", "style") and "hacked" in data:
            self.found.append(self._open)


def _tags(text: str) -> list[str]:
    parser = _Tags()
    parser.feed(text)
    return parser.found
