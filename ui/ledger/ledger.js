// Legend, table and readout of compared runs. Names are foreign text and reach the page through
// textContent only. One state per place survives every update, and so do focus, scroll and readout. It is put into the
// page once, because what a component brings with it is sent again whenever it is drawn.
(() => {
if (window.trainyardLedger) return;
const states = new WeakMap();
const roles = { tr: "row", td: "gridcell", th: "columnheader" };
const tag = (name, text = "", kind = "", more = {}) => Object.assign(document.createElement(name), { textContent: text, className: kind, role: roles[name] ?? null }, more);
/** Series received, by mark: a click tells the server which one is here, and it is not sent again. */
const readouts = new Map();
const highlight = (s, title) => s.send("high", [title, s.data.readout.mark]);
const chartOf = (key) => document.querySelector(`.st-key-${key} .js-plotly-plot`);

/** Read Plotly's internal names, here only; null where they are not as expected. */
function drawn(chart) {
  const { xaxis: x, yaxis: y, yaxis2: low = y } = chart?._fullLayout ?? {};
  if (!x?._length || !chart._fullData) return null;
  const lines = chart._fullData.filter((line) => line.legendgroup).map((line) => [line.legendgroup, chart.querySelector(`.trace${line.uid}`), line.yaxis]);
  const names = ["annotations", "shapes"].flatMap((kind) => (chart.layout[kind] ?? []).flatMap(({ name }, at) => name ? [[name, chart.querySelector(kind === "shapes" ? `.shapelayer path[data-index="${at}"]` : `.annotation[data-index="${at}"]`)]] : []));
  const rows = [y, low].map(({ _offset, _length, range }) => ({ top: _offset, height: _length, low: range[0], high: range[1] }));
  return { left: x._offset, width: x._length, rows, top: y._offset, height: y._length, bottom: low._offset + low._length, lines: lines.filter(([, node]) => node), names: names.filter(([, node]) => node) };
}

window.trainyardLedger = ({ data, parentElement, setTriggerValue }) => {
  const root = parentElement.querySelector(".ty-ledger");
  if (!states.has(root)) states.set(root, listen({ root, at: null, saved: new Map(), bound: new WeakSet(), end: new AbortController() }));
  const { mark } = data.readout, readout = data.readout.rows ? data.readout : readouts.get(mark);
  readouts.delete(mark);
  readouts.set(mark, readout);
  if (readouts.size > 8) readouts.delete(readouts.keys().next().value);
  Object.assign(data, { t: readout.t, labels: readout.labels });
  for (const row of data.rows) Object.assign(row, readout.rows[row.title]);
  const s = Object.assign(states.get(root), { data, send: setTriggerValue });
  table(s);
  s.at === null ? rest(s) : read(s, Math.min(s.at, data.t.length - 1));
  // Of two calls in a row the first may be cleaned up while its place stays.
  return () => setTimeout(() => root.isConnected || (rest(s), raise(s, null), s.end.abort()));
};

function table(s) {
  const { data, root } = s, wide = { colSpan: Math.max(data.columns.length, 1) };
  const all = (s.all = tag("button", "Show all", "all", { type: "button", onclick: (event) => (event.stopPropagation(), hide(s, data.rows.filter((row) => row.hidden))) }));
  const column = (one, at) => tag("th", one.title, one.sorted ?? "", { title: one.help ?? "", scope: "col", onclick: () => s.send("sort", at) });
  s.head = tag("th", "", "read", { colSpan: 2 });
  const over = tag("tr"), names = tag("tr"), readouts = (s.heads = data.rest_heads.map((text) => tag("th", text, "read")));
  over.append(tag("th", "", "name"), s.head, tag("th", data.over, "over", wide));
  names.append(column({ title: "Policy" }, -1), ...readouts, ...data.columns.map(column));
  names.firstChild.append(all);
  root.querySelector("thead").replaceChildren(over, names);
  s.boxes = data.rows.map((row) => tag("i", "", row.changed ? "changed" : ""));
  s.lines = data.rows.map((row, at) => {
    const line = tag("tr", "", row.kind, { title: row.title, id: `${data.id}-${at}` }), name = tag("th", "", "name", { role: "rowheader" });
    line.style.cssText = `--own: ${row.colour}; --tint: ${row.colour}1c`;
    name.append(s.boxes[at], tag("b", row.title), tag("small", row.mark, "", { title: row.mark }));
    const cells = row.cells.map(([text, change, verdict, help]) => tag("td", text, "", { title: help }).appendChild(tag("span", change, verdict)).parentNode);
    cells.forEach((cell, column) => (cell.dataset.title = data.columns[column].title));
    s.read = [...(at ? s.read : []), data.heads.map(() => tag("td", "", "read"))];
    const note = tag("td", "", "note", { colSpan: 2 + wide.colSpan });
    note.append(tag("b", "", "done"), tag("progress"), tag("span"));
    line.append(name, ...(row.note ? [note] : [...s.read[at], ...cells]));
    advance(line, row);
    return line;
  });
  root.querySelector("tbody").replaceChildren(...s.lines);
  check(s);
  mark(s);
}

/** Show the progress of an unfinished policy in its row; one with earlier figures says it beside its name. */
function advance(line, { note, share, kind }) {
  const cell = line.querySelector(".note"), percent = share === null ? "" : `${Math.round(100 * share)} %`;
  if (!cell) return void (kind === "earlier" && percent && (line.querySelector("small").textContent = percent));
  const [done, bar, text] = cell.children;
  done.textContent = percent;
  done.hidden = bar.hidden = share === null;
  bar.value = share ?? 0;
  bar.setAttribute("aria-label", `${line.title}: ${percent}`);
  text.textContent = note;
}

window.trainyardProgress = ({ data }) => {
  const root = document.querySelector(`.st-key-${data.id} .ty-ledger`), s = root && states.get(root);
  s?.data.rows.forEach((row, at) => Object.hasOwn(data.rows, row.title) && ([row.note, row.share] = data.rows[row.title], advance(s.lines[at], row)));
};

/** Show on each box whether the lines of its policy are hidden. */
function check(s) {
  const { rows, hides } = s.data;
  rows.forEach(({ title, hidden, note }, at) => {
    const box = s.boxes[at];
    box.classList.toggle("hollow", hidden === true);
    if (!hides || note) return;
    for (const [name, value] of [["role", "checkbox"], ["aria-label", `Lines of ${title}`], ["aria-checked", !hidden], ["aria-disabled", hidden === null]]) box.setAttribute(name, value);
    box.title = hidden === null ? "" : hidden ? "Show lines (H)" : "Hide lines (H)";
  });
  s.all.hidden = !rows.some((row) => row.hidden);
}

/** Hide the lines and names of policies, or show them again: here at once, then on the server. */
function hide(s, rows) {
  const { data } = s, possible = rows.filter((row) => data.hides && row?.hidden !== null && !row?.note);
  if (!possible.length) return;
  raise(s, null);
  for (const row of possible) {
    row.hidden = !row.hidden;
    for (const chart of [data.charts.time, data.charts.curve].map(chartOf)) {
      const at = drawn(chart);
      for (const [own, node] of [...(at?.lines ?? []), ...(at?.names ?? [])]) if (own === row.title) node.style.display = row.hidden ? "none" : "";
    }
  }
  check(s);
  s.send("hide", data.rows.filter((row) => row.hidden).map((row) => row.title));
}

function listen(s) {
  const on = (target, name, act) => target.addEventListener(name, act, { signal: s.end.signal, passive: name !== "keydown" });
  const row = (event) => event.target.closest?.("tbody tr")?.title ?? null;
  const click = (event) => {
    const title = row(event);
    if (title && (event.altKey || event.target.role === "checkbox")) hide(s, find(s, title));
    else if (title) event.pointerType === "touch" ? raise(s, title) : highlight(s, title);
  };
  on(document, "pointermove", (event) => point(s, event));
  // Escape resets the zoom window, then accepts the last change.
  on(document, "keydown", (event) => event.key === "Escape" && event.target === document.body && (s.data.zoomed ? s.send("window", []) : document.querySelector(".st-key-change_close button")?.click()));
  on(s.root, "pointerover", (event) => raise(s, row(event)));
  on(s.root, "pointerleave", () => raise(s, null));
  // A touch is a hover, a long one a click.
  on(s.root, "click", click);
  on(s.root, "pointerdown", (event) => event.pointerType === "touch" && row(event) && (s.held = setTimeout(() => highlight(s, row(event)), 500)));
  for (const name of ["pointerup", "pointercancel", "pointerleave"]) on(s.root, name, () => clearTimeout(s.held));
  on(s.root, "focusout", () => (raise(s, null), mark(s)));
  on(s.root, "keydown", (event) => key(s, event));
  return s;
}

const find = (s, title) => s.data.rows.filter((row) => row.title === title);

function key(s, event) {
  if (event.target !== s.root || event.ctrlKey || event.metaKey) return;
  const here = s.lines.findIndex((line) => line.title === s.focus), last = s.data.t.length - 1;
  const row = { ArrowUp: Math.max(here - 1, 0), ArrowDown: Math.min(here + 1, s.lines.length - 1) }[event.key];
  const step = ({ ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0) * (event.shiftKey ? 10 : 1), end = { Home: 0, End: last }[event.key];
  if (row !== undefined) raise(s, (s.focus = s.lines[row].title)), mark(s), s.lines[row].scrollIntoView({ block: "nearest" });
  else if (event.key === "Enter" && s.focus) highlight(s, s.focus);
  else if (event.key.toLowerCase() === "h" && s.focus) hide(s, find(s, s.focus));
  else if (event.key === "Escape") s.at === null && s.data.zoomed ? s.send("window", []) : rest(s);
  else if (last >= 0 && (step || end !== undefined)) read(s, end ?? Math.min(Math.max((s.at ?? (step > 0 ? -1 : last + 1)) + step, 0), last), true);
  else return;
  event.preventDefault();
}

function mark(s) {
  for (const line of s.lines) line.classList.toggle("at", line.title === s.focus && document.activeElement === s.root);
  s.root.setAttribute("aria-activedescendant", s.lines.find((line) => line.title === s.focus)?.id ?? "");
}

function point(s, event) {
  const chart = event.target.closest?.(".js-plotly-plot"), { time, curve, strip } = s.data.charts, key = chart && [time, curve].find((one) => one && chart === chartOf(one));
  const at = key && drawn(chart);
  if (!at) return void (s.pointed && ((s.pointed = false), rest(s)));
  if (!s.bound.has(chart)) s.bound.add(chart), chart.on("plotly_selected", (found) => brush(s, found?.range)), chart.on("plotly_deselect", () => s.data.zoomed && s.send("window", [])), chart.on("plotly_clickannotation", ({ annotation: { name }, event }) => (event.altKey ? hide(s, find(s, name)) : highlight(s, name)));
  const box = chart.getBoundingClientRect(), zoom = box.width / chart.offsetWidth || 1; // of a presentation
  const share = ((event.clientX - box.left) / zoom - at.left) / at.width, down = (event.clientY - box.top) / zoom;
  if (share < 0 || share > 1) return;
  s.pointed = true;
  if (key === curve) return within(s, share, Math.min(Math.max(1 - (down - at.top) / at.height, 0), 1));
  const [t0, t1] = strip && down > at.bottom + 20 ? s.data.span : s.data.window, instant = t0 + share * (t1 - t0);
  read(s, s.data.t.findLastIndex((begin) => begin <= instant));
}

function brush(s, range) {
  const ends = range?.x ?? range?.x2;
  if (ends) s.send("window", [...ends].sort((a, b) => a - b));
}

function read(s, at, aloud = false) {
  const { data, root } = s, [t0, t1] = data.window;
  if (at < 0 || !data.t.length) return rest(s);
  s.at = at;
  fill(s, `at ${data.labels[at]}`, data.heads, (row) => [queue(row, at), row.busy[at] === null ? (row.waiting[at] === null ? "done" : "–") : `${row.busy[at]} %`]);
  hair(s, data.charts.time, (Math.min(Math.max((data.t[at] + data.t[at + 1]) / 2, t0), t1) - t0) / (t1 - t0), data.labels[at]);
  if (aloud) root.querySelector("[aria-live]").textContent = [s.head.textContent, ...s.lines.map((line, i) => `${line.title} ${s.read[i].map((cell) => cell.textContent).join(", ")}`)].join("; ");
}

function within(s, share, part) {
  const [low, high] = s.data.curve.log, seconds = 10 ** (low + share * (high - low)), number = (curve) => curve.findLastIndex((one) => one <= seconds) + 1;
  s.at = null;
  fill(s, `within ${length(seconds)} · ${Math.round(100 * part)} %`, ["Jobs completed", "Completed within"], ({ curve }) => (curve.length ? [`${Math.round((100 * number(curve)) / curve.length)} %`, length(curve[Math.round(part * (curve.length - 1))])] : ["–", "–"]));
}

function fill(s, head, heads, values) {
  s.head.textContent = head;
  s.heads.forEach((cell, column) => (cell.textContent = heads[column]));
  s.data.rows.forEach((row, at) => row.note || values(row, at).forEach((text, column) => (s.read[at][column].textContent = text)));
}

function rest(s) {
  s.at = null;
  fill(s, s.data.rest, s.data.rest_heads, (row) => row.rest);
  hair(s, s.data.charts.time, null);
}

/** Move the line over a chart to a share of its width; null takes it away. */
function hair(s, key, share, text) {
  const chart = chartOf(key), at = share === null ? null : drawn(chart);
  s.hair?.parentNode !== chart && s.hair?.remove();
  if (!at) return s.hair?.remove();
  s.hair ??= tag("div", "", "ty-hair"), s.hair.isConnected || chart.append(s.hair);
  s.hair.style.cssText = `left: ${at.left + share * at.width}px; top: ${at.top}px; height: ${at.bottom - at.top}px`;
  s.hair.dataset.at = text;
}

/** Raise the lines of one policy in both charts; null restores all as they were. */
function raise(s, title) {
  if (s.up === title) return;
  for (const [node, [opacity, path, width]] of s.saved) (node.style.opacity = opacity), path && (path.style.strokeWidth = width);
  s.saved.clear();
  s.ghost?.remove();
  s.up = title;
  for (const chart of title === null ? [] : [s.data.charts.time, s.data.charts.curve].map(chartOf)) {
    const at = drawn(chart), lines = at?.lines ?? [];
    for (const [own, node] of lines) {
      const path = node.querySelector(".js-line");
      s.saved.set(node, [node.style.opacity, path, path?.style.strokeWidth]);
      node.style.opacity = own === title ? 1 : 0.15;
      if (path && own === title) path.style.strokeWidth = "2.6px";
    }
    if (at && chart === chartOf(s.data.charts.time)) ghost(s, chart, at, lines.filter(([own, node]) => own === title && node.style.display !== "none").map(([, , axis]) => axis));
  }
}

/** Draw the lines of a policy that the figure has not in `axes`, for as long as its row is pointed at. */
function ghost(s, chart, { left, width, rows }, axes) {
  const { data, up } = s, row = data.rows.find((one) => one.title === up), [t0, t1] = data.window;
  if (!row || row.note || axes.length > 1) return;
  s.ghost = tag("div", "", "ty-ghost");
  const path = [row.waiting, row.busy].map((values, part) => axes.includes(["y", "y2"][part]) ? "" : values.map((value, at) => {
    const { top, height, low, high } = rows[part], x = left + Math.min(Math.max(((data.t[at] + data.t[at + 1]) / 2 - t0) / (t1 - t0), 0), 1) * width;
    return value === null ? "" : `${at ? "L" : "M"}${x.toFixed(1)},${(top + height * (1 - (value - low) / (high - low))).toFixed(1)}`;
  }).join("")).join("");
  if (!path) return;
  const lines = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  lines.append(Object.assign(document.createElementNS(lines.namespaceURI, "path")));
  lines.firstChild.setAttribute("d", path);
  lines.style.color = row.colour;
  s.ghost.append(lines);
  chart.append(s.ghost);
}

/** Jobs waiting in a bin, in whole numbers: the mean, and the maximum where it is another. */
const queue = ({ waiting, most }, at) => {
  if (waiting[at] === null) return "done";
  const mean = Math.round(waiting[at]);
  return most[at] > mean ? `${mean}, max ${most[at]}` : `${mean}`;
};

const length = (s) => {
  const [size, unit] = [[90, 1, "s"], [5400, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "days"]].find(([most]) => s < most).slice(1);
  return `${s / size >= 9.95 ? Math.round(s / size).toLocaleString("en") : +(s / size).toPrecision(2)} ${unit}`;
};
})();
