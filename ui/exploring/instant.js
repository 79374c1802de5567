// The crosshair over the figure of the machines, and the instant that is fixed. Names of rows are
// foreign text and reach the page through textContent only. One state per place survives updates.
const states = new WeakMap();
const DRAG_PX = 5, TAP_PX = 24;

/** Read Plotly's internal names, here only; null where they are not as expected. */
function drawn(chart) {
  const { xaxis: x, xaxis2: whole, _size: size } = chart?._fullLayout ?? {};
  if (!x?._length || !size) return null;
  const y = (n) => chart._fullLayout[`yaxis${n === 1 ? "" : n}`];
  return { left: x._offset, width: x._length, panel: (n) => y(n) && { top: y(n)._offset, height: y(n)._length }, shares: (n) => chart.calcdata?.find((one) => one[0]?.trace?.type === "heatmap" && one[0].trace.yaxis === `y${n === 1 ? "" : n}`)?.[0]?.z, whole };
}

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".ty-instant");
  if (!states.has(root)) states.set(root, listen({ root, tapped: Infinity, end: new AbortController() }));
  const s = Object.assign(states.get(root), { data, send: setTriggerValue });
  root.querySelector("b").textContent = data.text[0].toUpperCase() + data.text.slice(1);
  root.setAttribute("aria-valuetext", data.text);
  root.setAttribute("aria-valuemin", data.window[0]), root.setAttribute("aria-valuemax", data.window[1]), root.setAttribute("aria-valuenow", data.at);
  s.seek = setInterval(() => fixed(s), 250);
  fixed(s);
  return () => (clearInterval(s.seek), setTimeout(() => root.isConnected || (s.hover?.remove(), s.line?.remove(), s.end.abort())));
}

function listen(s) {
  const on = (target, name, act) => target.addEventListener(name, act, { signal: s.end.signal, passive: name !== "keydown" });
  on(document, "pointermove", (event) => hover(s, event));
  on(document, "pointerdown", (event) => (s.down = event.button === 0 ? found(s, event) : null));
  on(document, "pointerup", (event) => up(s, event));
  on(document, "ty-cursor", ({ detail: { row, t, text } }) => (s.hover = hair(s, s.hover, (t - s.data.window[0]) / (s.data.window[1] - s.data.window[0]), `${s.data.rows[row]} · ${text}`, "")));
  on(s.root, "keydown", (event) => key(s, event));
  return s;
}

const chartOf = (s) => document.querySelector(`.st-key-${s.data.chart} .js-plotly-plot`);

/** Where a pointer is: the instant, and the row of the machines; null outside. */
function found(s, event, anywhere = false) {
  const chart = chartOf(s), at = drawn(chart);
  if (!at || !(anywhere || chart.contains(event.target))) return null;
  const box = chart.getBoundingClientRect(), across = (event.clientX - box.left - at.left) / at.width, down = event.clientY - box.top, { panels, rows, window, span } = s.data;
  if (!anywhere && (across < 0 || across > 1 || down < at.panel(1).top)) return null;
  const part = [...Array(panels + 2).keys()].map((n) => at.panel(n + 1)).findIndex((one) => one && down >= one.top && down <= one.top + one.height);
  const [t0, t1] = part === panels + 1 ? span : window, share = Math.min(Math.max(across, 0), 1), here = part >= 0 && part < panels ? at.panel(part + 1) : null;
  const row = here ? Math.min(Math.floor(((down - here.top) / here.height) * rows.length), rows.length - 1) : -1;
  return { t: t0 + share * (t1 - t0), x: event.clientX, across: share, row, panel: part, strip: part === panels + 1, value: row < 0 ? undefined : cell(at.shares(part + 1), row, share) };
}

function cell(shares, row, share) {
  const line = shares?.[row];
  return line?.[Math.min(Math.floor(share * line.length), line.length - 1)];
}

/** Name the jobs at a point above the map; return the widest one (row in the trace, -1 = none) and the time as text. */
function jobAt({ panel, row, t }) {
  const detail = { panel, row, t, job: -1, text: "" };
  document.dispatchEvent(new CustomEvent("ty-point", { detail }));
  return detail;
}

const bin = (s, t) => Math.min(Math.max(s.data.t.findLastIndex((begin) => begin <= t), 0), s.data.t.length - 1);

function hover(s, event) {
  const at = found(s, event);
  if (!at || at.strip) return s.hover?.remove();
  const place = bin(s, at.t), text = jobAt(at).text || s.data.labels[place], value = at.value === undefined || at.value === null ? "" : ` · ${Math.round(at.value)} %`;
  s.hover = hair(s, s.hover, at.across, `${at.row < 0 ? "" : `${s.data.rows[at.row]}${value} · `}${text}`, "");
}

function up(s, event) {
  const from = s.down, to = from && found(s, event, true);
  s.down = null;
  if (!to) return;
  if (Math.abs(to.x - from.x) < DRAG_PX) {
    if (from.strip) return;
    // The first touch names the jobs, the second one at the same place opens the widest.
    const { job } = jobAt(from), names = event.pointerType === "touch" && Math.abs(from.x - s.tapped) > TAP_PX;
    s.tapped = names ? from.x : Infinity;
    return s.send("pick", { at: from.t, row: from.row, job: names ? -1 : job });
  }
  const [t0, t1] = from.strip ? s.data.span : s.data.window;
  s.send("window", [from.across, to.across].map((share) => t0 + share * (t1 - t0)).sort((a, b) => a - b));
}

function key(s, event) {
  const { at, step, window } = s.data, way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
  const to = way ? at + way * step * (event.shiftKey ? 10 : 1) : { Home: window[0], End: window[1] }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  s.send("pick", { at: Math.min(Math.max(to, window[0]), window[1]), row: -1, job: -1 });
}

function fixed(s) {
  const { at, window } = s.data;
  s.line = hair(s, s.line, (at - window[0]) / (window[1] - window[0]), "", "ty-fixed");
}

/** Put a line at a share of the width, over machines and queue. */
function hair(s, line, share, text, kind) {
  const chart = chartOf(s), at = drawn(chart), last = at?.panel(s.data.panels + 1);
  if (!last) return void line?.remove();
  line ??= Object.assign(document.createElement("div"), { className: `ty-hair ${kind}` });
  line.parentNode === chart || chart.append(line);
  const top = at.panel(1).top;
  line.style.cssText = `left: ${at.left + share * at.width}px; top: ${top}px; height: ${last.top + last.height - top}px`;
  line.dataset.at = text;
  return line;
}
