"""Scenarios that this browser has run: a list in the browser's own store, so that nobody else sees it and the server knows nothing of it."""

from __future__ import annotations

import html
import json
import zlib
from typing import Final
from urllib.parse import urlencode, urlsplit

import streamlit as st

import charts
from lab import outcomes
from lab.front import Study, TrainyardError, load_trace
from ui import server, state

_LONGEST: Final = 120
"""Characters of a name."""


def note(study: Study) -> None:
    """Let the browser remember a study whose result is shown."""
    try:
        trace = load_trace(study.base.trace, server.store()).name
    except TrainyardError:
        return
    entry = {
        "address": urlencode({state.SCENARIO: study.pack(), state.RESULT: state.SAME}),
        "id": study.digest,
        "name": charts.visible(study.base.name or trace, _LONGEST),
        "policies": ", ".join(outcomes.titles(study.allocators))[:_LONGEST],
    }
    # What cleans the HTML in the browser removes attributes that hold tags, even escaped ones.
    told = json.dumps(entry).replace("<", "\\u003c").replace(">", "\\u003e")
    # The entry stands in an attribute, so that no name in it can become a part of the script. Scripts run when their element is new, hence the key.
    with st.container(key=f"shown/{zlib.crc32(told.encode())}"):
        st.html(f'<div id="ty-shown" data-entry="{html.escape(told)}"></div><script>{_NOTE}</script>', unsafe_allow_javascript=True)


def draw() -> None:
    """Draw the list, which the browser fills; nothing where it is empty."""
    page = f"{urlsplit(st.context.url or '').path.rstrip('/')}/compare"
    st.html(f'<div id="ty-recent" data-page="{html.escape(page)}"></div><script>{_DRAW}</script>', unsafe_allow_javascript=True)


_READ: Final = """
  const KEY = "trainyard-recent", MOST = 12;
  const read = () => {
    try {
      const found = JSON.parse(localStorage.getItem(KEY) || "[]");
      return Array.isArray(found) ? found.filter((one) => one && typeof one.address === "string" && typeof one.id === "string") : [];
    } catch { return []; }
  };
  const write = (entries) => { try { localStorage.setItem(KEY, JSON.stringify(entries.slice(0, MOST))); } catch { /* no room, or not allowed */ } };
"""
_NOTE: Final = f"""(() => {{{_READ}
  const entry = {{ ...JSON.parse(document.getElementById("ty-shown").dataset.entry), at: Date.now() }};
  write([entry, ...read().filter((one) => one.id !== entry.id)]);
}})();"""
_DRAW: Final = f"""(() => {{{_READ}
  const place = document.getElementById("ty-recent");
  const made = (kind, text, parent) => {{
    const element = document.createElement(kind);
    element.textContent = text;
    parent.append(element);
    return element;
  }};
  const draw = () => {{
    place.replaceChildren();
    const entries = read();
    if (!entries.length) return;
    made("h2", "Recent on this device", place);
    const list = made("ul", "", place);
    for (const one of entries) {{
      const row = made("li", "", list);
      made("a", String(one.name), row).href = place.dataset.page + "?" + one.address;
      const at = new Date(Number(one.at)).toLocaleString(undefined, {{ dateStyle: "medium", timeStyle: "short" }});
      made("span", `${{one.policies}} · ${{at}}`, row);
      const button = made("button", "Forget", row);
      button.setAttribute("aria-label", `Forget ${{one.name}}`);
      button.onclick = () => {{ write(read().filter((other) => other.id !== one.id)); draw(); }};
    }}
    made("button", "Forget all", place).onclick = () => {{ write([]); draw(); }};
  }};
  draw();
}})();"""
