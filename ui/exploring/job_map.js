// Jobs by node and time. Above 64 nodes a map and a lens are drawn here; else the jobs under the pointer of the Plotly
// map are named. Names are foreign text: they reach the page through textContent and canvas only. One state per place
// survives updates; the bytes are those of `trainyard.views.job_map.pack`.
const states = new WeakMap();
const NAMED = 5, LENS_ROWS = 5, ROW_PX = 34, LENS_S = 6 * 3600, DRAG_PX = 5, TAP_PX = 24, NAME_PX = 14;
const MAP_PX = 384, PAIR_PX = 240, TITLE_PX = 24, AXIS_PX = 22, RIGHT_PX = 16, DOWN_ALPHA = 0.5;
const limit = (value, low, high) => Math.max(low, Math.min(value, high));
const tag = (name, text = "", kind = "", more = {}) => Object.assign(document.createElement(name), { textContent: text, className: kind }, more);

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".ty-jobs");
  if (!states.has(root)) states.set(root, listen({ root, end: new AbortController(), frames: 0, draws: 0, cursor: null, pinned: null, lens: null }));
  const s = Object.assign(states.get(root), { send: setTriggerValue });
  update(s, data);
  return () => setTimeout(() => root.isConnected || (s.resized.disconnect(), s.themed.disconnect(), s.end.abort()));
}

/** Read new bytes, and draw them if they differ from those before. */
function update(s, bytes) {
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const text = new TextDecoder().decode(bytes.subarray(4, 4 + length));
  if (text === s.text) return;
  s.text = text;
  s.data = unpack(JSON.parse(text), bytes.slice(4 + length).buffer);
  s.cursor = s.pinned = s.lens = null;
  // For tests: names at a point, and counts of frames and drawings.
  s.root.jobMap = { names: (panel, row, t) => find(s.data, { panel, row, t }).map((one) => s.data.names[s.data.panels[panel].job[one]]), draw: () => draw(s), paint: () => paint(s), state: s };
  build(s);
  draw(s);
  const { at, node } = Object.fromEntries(new URLSearchParams(location.search)), { window: [t0, t1], rows } = s.data;
  const t = at && +at >= t0 && +at <= t1 ? +at : (t0 + t1) / 2, busy = rows.findIndex((_, row) => find(s.data, { panel: 0, row, t }).length);
  if (s.data.canvas) move(s, { panel: 0, row: Math.max(rows.includes(node) ? rows.indexOf(node) : busy, 0), t }, true);
  else read(s);
}

/** Give each array its place: `first`, `longest` by node; `begin`, `end`, `job`, `gpus` by holding; `of` = holdings by job. */
function unpack(data, buffer) {
  let place = 0;
  const take = (count, Kind = Uint32Array) => new Kind(buffer, (place += 4 * count) - 4 * count, count), rows = data.rows.length;
  data.jobs = take(data.names.length);
  for (const panel of data.panels) {
    const first = take(rows + 1), [begin, end, job] = [1, 2, 3].map(() => take(panel.count)), gpus = take(panel.count, Float32Array);
    const [row, from, to] = [1, 2, 3].map(() => take(panel.down));
    const longest = new Float64Array(rows), rowOf = new Uint32Array(panel.count), of = data.names.map(() => []);
    for (let at = 0; at < rows; at++)
      for (let one = first[at]; one < first[at + 1]; one++) (longest[at] = Math.max(longest[at], end[one] - begin[one])), (rowOf[one] = at), of[job[one]].push(one);
    Object.assign(panel, { first, begin, end, job, gpus, longest, rowOf, of, outages: [...row].map((at, one) => [at, from[one], to[one]]), lanes: new Map() });
  }
  return data;
}

const toSteps = (data, t) => (t - data.origin) / data.step;
const toTime = (data, steps) => data.origin + steps * data.step;

/** Holdings of a row that overlap [from, to) in steps, latest first: binary search, back at most the longest holding. */
function overlapping({ first, begin, end, longest }, row, from, to) {
  let [low, high] = [first[row], first[row + 1]];
  while (low < high) {
    const middle = (low + high) >> 1;
    begin[middle] < to ? (low = middle + 1) : (high = middle);
  }
  const found = [];
  for (let one = low - 1; one >= first[row] && begin[one] + longest[row] > from; one--) if (end[one] > from) found.push(one);
  return found;
}

/** Holdings at a point, widest first, then longest. */
function find(data, { panel, row, t }) {
  const own = data.panels[panel], steps = toSteps(data, t);
  const length = (one) => own.end[one] - own.begin[one];
  return overlapping(own, row, steps, steps + 1e-6).sort((a, b) => own.gpus[b] - own.gpus[a] || length(b) - length(a) || a - b);
}

const isDown = (data, { panel, row, t }) => data.panels[panel].outages.some(([at, from, to]) => at === row && from <= toSteps(data, t) && toSteps(data, t) < to);

/** Runs of GPUs of each holding of a row, as [lowest, count]: the lowest free ones first, by time. */
function lanes(data, panel, row) {
  const { first, begin, end, gpus, lanes } = data.panels[panel];
  if (lanes.has(row)) return lanes.get(row);
  const until = [], found = new Map();
  for (let one = first[row]; one < first[row + 1]; one++) {
    const runs = [];
    for (let lane = 0, left = Math.ceil(gpus[one]); left > 0; lane++) {
      if ((until[lane] ?? 0) > begin[one]) continue;
      until[lane] = end[one];
      left--;
      const last = runs.at(-1);
      last && last[0] + last[1] === lane ? last[1]++ : runs.push([lane, 1]);
    }
    found.set(one, runs);
  }
  lanes.set(row, found);
  return found;
}

/** An instant as `RunClock.format` writes it. */
function instant({ midnight, days, seconds }, t) {
  const day = limit(Math.floor((t - midnight) / 86400), 0, days.length - 1), second = Math.floor(t - midnight - 86400 * day + 1e-3);
  const parts = [second / 3600, (second / 60) % 60, second % 60].slice(0, seconds ? 3 : 2);
  return `${days[day]}, ${parts.map((part) => String(Math.floor(part)).padStart(2, "0")).join(":")}`;
}

/** Seconds in a readable unit, as `trainyard.formatting.duration` writes them. */
function duration(s) {
  const [, size, unit, whole] = [[90, 1, "s", 9.95], [5400, 60, "min", 9.95], [172800, 3600, "h", Infinity], [Infinity, 86400, "days", 99.95]].find(([most]) => s < most), value = s / size;
  return `${Number.isInteger(value) || value >= whole ? Math.round(value).toLocaleString("en") : value >= 0.95 ? value.toFixed(1) : +value.toPrecision(2)} ${unit}`;
}

const count = (number, unit) => `${+number.toFixed(2)} ${unit}${number === 1 ? "" : "s"}`;

/** Put the elements for these data into the page. */
function build(s) {
  const { root, data } = s, { canvas, unit } = data;
  const head = tag("div", "", "head");
  s.line = root.querySelector("p") ?? tag("p", "", "", { ariaLive: "polite" });
  head.append(s.line);
  root.replaceChildren(head);
  s.said = null;
  if (!canvas) return;
  const scale = tag("span", "0 %", "scale"), out = data.panels.reduce((sum, one) => sum + one.left_out, 0);
  scale.append(tag("i"), `100 % of a node's ${unit}s`);
  if (data.panels.some((one) => one.down)) scale.append(tag("i", "", "down"), "down");
  if (out) scale.append(` · ${out.toLocaleString("en")} shortest left out`);
  head.append(scale);
  s.map = tag("div", "", "map");
  [s.base, s.over, s.near] = [1, 2, 3].map(() => tag("canvas"));
  s.near.className = "lens";
  s.map.append(s.base, s.over);
  s.label = tag("div", "", "near");
  root.append(s.map, s.label, s.near);
  s.label.append(tag("b", "Nodes near the pointer"), `${Math.min(LENS_ROWS, data.rows.length)} nodes, ${duration(span(data))}; click a bar for the job`);
  point(s, s.map, (event) => onMap(s, event), (from, to) => s.send("window", [from.t, to.t].sort((a, b) => a - b)));
  point(s, s.near, (event) => onLens(s, event), null);
}

const span = ({ window: [t0, t1] }) => Math.min(LENS_S, (t1 - t0) / 4);

/** Set a canvas to a size in CSS pixels, and return its context with the page's font. */
function context(s, canvas, height) {
  const scale = window.devicePixelRatio || 1, width = s.width, pixels = [width, height].map((one) => Math.round(one * scale));
  if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) {
    [canvas.width, canvas.height] = pixels;
    canvas.style.cssText = `width: ${width}px; height: ${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = s.font;
  return pen;
}

/** Return text cut in the middle to a width in pixels. */
function fit(pen, text, most) {
  if (pen.measureText(text).width <= most) return text;
  const cut = (kept) => `${text.slice(0, Math.ceil(kept / 2))}…${text.slice(text.length - Math.floor(kept / 2))}`;
  let kept = text.length - 1;
  while (kept > 1 && pen.measureText(cut(kept)).width > most) kept--;
  return kept > 1 ? cut(kept) : "";
}

function write(pen, text, x, y, color, align = "left") {
  Object.assign(pen, { fillStyle: color, textAlign: align, textBaseline: "middle" });
  pen.fillText(text, x, y);
}

const top = (s, panel) => panel * (s.high + TITLE_PX) + (s.data.panels.length > 1 ? TITLE_PX : 0);
const across = (s, t) => s.left + ((t - s.data.window[0]) / (s.data.window[1] - s.data.window[0])) * (s.width - s.left - RIGHT_PX);
const hatch = (pen, color) => {
  const tile = Object.assign(document.createElement("canvas"), { width: 6, height: 6 }), line = tile.getContext("2d");
  line.strokeStyle = color;
  line.lineWidth = 1.5;
  for (const at of [-6, 0, 6]) line.moveTo(at, 6), line.lineTo(at + 6, 0);
  line.stroke();
  return pen.createPattern(tile, "repeat");
};

/** Return the colors of the parts of the drawing, as the style sheet has them in the present theme. */
function palette(root) {
  const probe = root.appendChild(tag("span"));
  const colors = ["ink", "second", "idle", "busy", "marked"].map((name) => ((probe.style.color = `var(--${name})`), [name, getComputedStyle(probe).color]));
  probe.remove();
  return Object.fromEntries(colors);
}

const theme = (root) => getComputedStyle(root).colorScheme;

/** Draw the map: the cells of each policy, times without capacity, names of nodes, and days. */
function draw(s) {
  const { data, root } = s;
  s.width = Math.floor(root.clientWidth);
  if (!data.canvas || !s.width) return;
  s.draws++;
  s.theme = theme(root);
  s.colors = palette(root);
  s.font = `13px ${getComputedStyle(root).fontFamily}`;
  s.left = Math.min(data.left, Math.round(s.width * 0.3));
  s.high = data.panels.length > 1 ? PAIR_PX : MAP_PX;
  const below = top(s, data.panels.length - 1) + s.high, pen = context(s, s.base, below + AXIS_PX), wide = s.width - s.left - RIGHT_PX;
  const { colors } = s, { rows } = data, each = s.high / rows.length, scale = window.devicePixelRatio || 1;
  data.panels.forEach((panel, at) => {
    const y = top(s, at);
    if (data.panels.length > 1) (pen.font = `600 ${s.font}`), write(pen, fit(pen, panel.title, wide), s.left, y - 11, panel.colors[Number(s.theme.includes("dark"))]), (pen.font = s.font);
    pen.imageSmoothingEnabled = s.high * scale < rows.length;
    pen.drawImage(cells(data, panel, shade(colors), Math.round(wide * scale)), s.left, y, wide, s.high);
    Object.assign(pen, { fillStyle: colors.second, globalAlpha: DOWN_ALPHA });
    for (const [row, from, to] of panel.outages) {
      const [x0, x1] = [from, to].map((steps) => limit(across(s, toTime(data, steps)), s.left, s.left + wide));
      pen.fillRect(x0, y + row * each, Math.max(x1 - x0, 1), Math.max(each, 1));
    }
    pen.globalAlpha = 1;
    const step = [1, 2, 4, 8, 16, 32, 64, 128, 256].find((one) => one * each >= 56) ?? 512;
    for (let row = 0; row < rows.length; row += step) if (row === 0 || (rows.length - 1 - row) * each >= 16) write(pen, fit(pen, rows[row], s.left - 8), s.left - 8, y + limit((row + 0.5) * each, 7, s.high - 7), colors.second, "right");
    write(pen, fit(pen, rows.at(-1), s.left - 8), s.left - 8, y + s.high - 7, colors.second, "right");
  });
  let free = -Infinity;
  data.ticks[0].forEach((t, at) => {
    const text = data.ticks[1][at].replace(/<[^>]*>/g, " "), half = pen.measureText(text).width / 2, x = limit(across(s, t), s.left + half, s.width - half);
    if (x - half > free) write(pen, text, x, below + 12, colors.second, "center"), (free = x + half + 8);
  });
  root.dataset.drawn = s.draws;
  s.cursor && paint(s);
}

/** Return a canvas with one pixel per row and `wide` pixels of time: the mean share of each row in use. */
function cells(data, { first, begin, end, gpus }, shades, wide) {
  const rows = data.rows.length, sums = new Float32Array(rows * (wide + 2));
  const [t0, t1] = data.window.map((t) => toSteps(data, t)), scale = wide / (t1 - t0);
  // A change at x alters the mean of its pixel by the rest of it, and all later pixels fully.
  const change = (start, at, amount) => {
    const x = limit((at - t0) * scale, 0, wide), pixel = Math.floor(x), part = x - pixel;
    sums[start + pixel] += amount * (1 - part);
    sums[start + pixel + 1] += amount * part;
  };
  const image = new ImageData(wide, rows), pixels = new Uint32Array(image.data.buffer);
  for (let row = 0; row < rows; row++) {
    const start = row * (wide + 2), size = data.size[row];
    for (let one = first[row]; one < first[row + 1]; one++) change(start, begin[one], gpus[one]), change(start, end[one], -gpus[one]);
    for (let x = 0, sum = 0; x < wide; x++) pixels[row * wide + x] = shades[Math.round(limit((sum += sums[start + x]) / size, 0, 1) * 255)];
  }
  const canvas = Object.assign(document.createElement("canvas"), { width: wide, height: rows });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** Return 256 colors from idle to busy as pixels. */
function shade({ idle, busy }) {
  const parts = (color) => color.match(/\d+/g).map(Number), [low, high] = [parts(idle), parts(busy)];
  return Uint32Array.from({ length: 256 }, (_, share) => {
    const [r, g, b] = low.slice(0, 3).map((from, at) => Math.round(from + ((high[at] - from) * share) / 255));
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  });
}

/** Move the cursor to a point; the lens follows unless the pointer is in it. Draws once per frame. */
function move(s, cursor, follows, job) {
  s.cursor = cursor;
  s.chosen = job;
  if (follows) s.lens = cursor;
  s.waits ??= requestAnimationFrame(() => ((s.waits = null), paint(s)));
}

/** Draw what depends on the cursor: its line, the widest job on all its nodes, the box of the lens, the lens, the names. */
function paint(s) {
  const { data, cursor } = s;
  s.frames++;
  const found = find(data, cursor);
  s.job = s.chosen !== undefined && found.includes(s.chosen) ? s.chosen : found[0];
  read(s, found);
  if (!data.canvas || !s.width) return;
  const { colors } = s, { rows } = data, { panel } = cursor, own = data.panels[panel], each = s.high / rows.length, y = top(s, panel), wide = s.width - s.left - RIGHT_PX;
  const pen = context(s, s.over, top(s, data.panels.length - 1) + s.high + AXIS_PX);
  pen.fillStyle = colors.marked;
  for (const one of s.job === undefined ? [] : own.of[own.job[s.job]]) {
    const [x0, x1] = [own.begin[one], own.end[one]].map((steps) => limit(across(s, toTime(data, steps)), s.left, s.left + wide));
    if (x1 > x0 || x0 < s.left + wide) pen.fillRect(x0, y + own.rowOf[one] * each - (each < 2 ? (2 - each) / 2 : 0), Math.max(x1 - x0, 1), Math.max(each, 2));
  }
  pen.strokeStyle = colors.ink;
  const { row, from, to, rows: shown } = view(s), x = Math.round(across(s, cursor.t)) + 0.5;
  pen.beginPath(), pen.moveTo(x, y), pen.lineTo(x, y + s.high), pen.stroke();
  pen.lineWidth = 1.5;
  pen.strokeRect(across(s, from), y + row * each - 1, across(s, to) - across(s, from), shown * each + 2);
  paintLens(s);
}

/** The part of the map in the lens: first row, number of rows, begin and end. */
function view({ data, lens }) {
  const rows = Math.min(LENS_ROWS, data.rows.length), [t0, t1] = data.window, from = limit(lens.t - span(data) / 2, t0, t1 - span(data));
  return { row: limit(lens.row - 2, 0, data.rows.length - rows), rows, from, to: from + span(data) };
}

function paintLens(s) {
  const { data, lens, cursor } = s, { row: begin, rows, from, to } = view(s), own = data.panels[lens.panel], { colors } = s;
  const pen = context(s, s.near, rows * ROW_PX + AXIS_PX), wide = s.width - s.left - RIGHT_PX, x = (t) => s.left + limit((t - from) / (to - from), 0, 1) * wide;
  const pattern = own.outages.length && hatch(pen, colors.second);
  s.bars = [];
  for (let at = 0; at < rows; at++) {
    const row = begin + at, high = ROW_PX - 3, y = at * ROW_PX, each = high / Math.max(data.size[row], 1), runs = lanes(data, lens.panel, row);
    pen.font = `${row === cursor.row ? 650 : 400} ${s.font}`;
    write(pen, fit(pen, data.rows[row], s.left - 8), s.left - 8, y + high / 2, row === cursor.row ? colors.ink : colors.second, "right");
    pen.font = s.font;
    pen.fillStyle = colors.idle;
    pen.fillRect(s.left, y, wide, high);
    for (const [down, t0, t1] of own.outages) if (down === row && toTime(data, t0) < to && toTime(data, t1) > from) (pen.fillStyle = pattern), pen.fillRect(x(toTime(data, t0)), y, x(toTime(data, t1)) - x(toTime(data, t0)), high);
    for (const one of overlapping(own, row, toSteps(data, from), toSteps(data, to)).reverse()) {
      const [x0, x1] = [own.begin[one], own.end[one]].map((steps) => x(toTime(data, steps)));
      runs.get(one).forEach(([lane, lanes], part) => {
        const [y0, tall] = [y + lane * each, lanes * each];
        s.bars.push({ row, one, x0, x1, y0, y1: y0 + tall });
        pen.fillStyle = data.colors[data.jobs[own.job[one]] % data.colors.length];
        pen.fillRect(x0, y0, Math.max(x1 - x0 - 1, 1), Math.max(tall - (each > 3 ? 1 : 0), 0.5));
        if (part || tall < NAME_PX || x1 - x0 < 30) return;
        const text = fit(pen, `job ${data.names[own.job[one]]}`, x1 - x0 - 12);
        if (text.length >= 9 || !text.includes("…")) write(pen, text, x0 + 6, y0 + Math.min(tall / 2, 9), "#1A1A1A");
      });
    }
  }
  pen.strokeStyle = colors.ink;
  if (lens.panel === cursor.panel) {
    pen.lineWidth = 1.5;
    for (const bar of s.bars) if (s.job !== undefined && own.job[bar.one] === own.job[s.job]) pen.strokeRect(bar.x0 + 0.75, bar.y0 + 0.75, Math.max(bar.x1 - bar.x0 - 1.5, 1), Math.max(bar.y1 - bar.y0 - 1.5, 1));
    pen.lineWidth = 1;
    const line = Math.round(x(cursor.t)) + 0.5;
    if (cursor.t >= from && cursor.t <= to) pen.beginPath(), pen.moveTo(line, 0), pen.lineTo(line, rows * ROW_PX - 3), pen.stroke();
  }
  const marks = wide > 600 ? [0, 1 / 3, 2 / 3, 1] : [0, 1];
  for (const mark of marks) write(pen, instant(data, from + mark * (to - from)), s.left + mark * wide, rows * ROW_PX + 10, colors.second, mark === 0 ? "left" : mark === 1 ? "right" : "center");
}

/** Write the names of the jobs at the cursor above the map; without a cursor what to do. */
function read(s, found = []) {
  const { data, cursor, line } = s;
  if (!cursor) {
    line.replaceChildren(tag("i", data.panels.some((one) => one.count) ? "Point at a node and a time to see its jobs." : "No job ran on these nodes in this window."));
    return;
  }
  const own = data.panels[cursor.panel], steps = toSteps(data, cursor.t), gpus = own.gpus;
  const place = `${data.panels.length > 1 ? `${own.title} · ` : ""}${data.rows[cursor.row]}, ${instant(data, cursor.t)}`;
  const said = `${place} ${found}`;
  if (said === s.said) return;
  s.said = said;
  const parts = found.slice(0, NAMED).map((one, at) => {
    const all = own.of[own.job[one]].reduce((sum, each) => sum + (own.begin[each] <= steps && steps < own.end[each] ? gpus[each] : 0), 0);
    const amount = all > gpus[one] + 1e-6 ? `${+gpus[one].toFixed(2)} of ${count(all, data.unit)}` : count(gpus[one], data.unit);
    const part = tag("span"), name = tag("button", `job ${data.names[own.job[one]]}`, "", { type: "button", tabIndex: -1, onclick: () => open(s, one) });
    part.append(...(at ? [tag("i", " · ", "dot")] : []), name, ` ${amount}, ${duration((own.end[one] - own.begin[one]) * data.step)}`);
    return part;
  });
  if (found.length > NAMED) parts.push(tag("i", " · ", "dot"), tag("span", `${found.length - NAMED} more`));
  if (!found.length) parts.push(tag("i", isDown(data, cursor) ? "down" : own.count ? "idle" : "No job ran on these nodes in this window."));
  line.replaceChildren(tag("b", place), ...parts);
}

/** Fix the instant and the node, and open a job, if there is one. */
function open(s, one) {
  const { data, cursor } = s;
  s.pinned = cursor;
  s.send("pick", { at: cursor.t, row: cursor.row, job: one === undefined ? -1 : data.jobs[data.panels[cursor.panel].job[one]] });
}

/** Listen to a pointer on an element: `place` moves the cursor, a click opens the job, a drag calls `zoom`. */
function point(s, target, place, zoom) {
  const on = (name, act) => target.addEventListener(name, act);
  let from = null, tapped = null;
  on("pointermove", (event) => place(event));
  on("pointerdown", (event) => event.button === 0 && (from = { x: event.clientX, y: event.clientY, at: place(event) }));
  on("pointercancel", () => (from = null));
  on("pointerleave", () => s.pinned && target === s.map && move(s, s.pinned, true));
  on("pointerup", (event) => {
    const start = from, at = place(event);
    from = null;
    if (!start || !at) return;
    const moved = Math.abs(event.clientX - start.x), touch = event.pointerType === "touch";
    if (moved >= DRAG_PX && !touch) return zoom && start.at && zoom(start.at, at);
    // The first touch names the jobs, the second one at the same place opens the widest.
    const again = tapped && Math.hypot(event.clientX - tapped.x, event.clientY - tapped.y) < TAP_PX;
    tapped = { x: event.clientX, y: event.clientY };
    s.pinned = s.lens;
    if (touch && !again) return;
    tapped = null;
    if (s.waits) cancelAnimationFrame(s.waits), (s.waits = null), paint(s);
    open(s, s.job);
  });
}

/** Move the cursor to a pointer over the map; return the point, or null outside. */
function onMap(s, event) {
  const { data } = s, box = s.base.getBoundingClientRect(), [x, y] = [event.clientX - box.left, event.clientY - box.top], [t0, t1] = data.window;
  const share = (x - s.left) / (s.width - s.left - RIGHT_PX), panel = data.panels.findIndex((_, at) => y >= top(s, at) && y < top(s, at) + s.high);
  if (panel < 0 || share < 0 || share > 1) return null;
  const row = Math.min(Math.floor(((y - top(s, panel)) / s.high) * data.rows.length), data.rows.length - 1), point = { panel, row, t: t0 + share * (t1 - t0) };
  move(s, point, true);
  return point;
}

/** Move the cursor to a pointer over the lens, which stays; return the point, or null outside. */
function onLens(s, event) {
  const box = s.near.getBoundingClientRect(), [x, y] = [event.clientX - box.left, event.clientY - box.top], { row, rows, from, to } = view(s);
  const share = (x - s.left) / (s.width - s.left - RIGHT_PX), at = Math.floor(y / ROW_PX);
  if (share < 0 || share > 1 || at < 0 || at >= rows) return null;
  const bar = s.bars.find((one) => one.row === row + at && x >= one.x0 && x < one.x1 && y >= one.y0 && y < one.y1);
  const point = { panel: s.lens.panel, row: row + at, t: from + share * (to - from) };
  move(s, point, false, bar?.one);
  return point;
}

function listen(s) {
  const on = (target, name, act) => target.addEventListener(name, act, { signal: s.end.signal, passive: name !== "keydown" });
  on(s.root, "keydown", (event) => key(s, event));
  // The script of the crosshair asks which job is at a point of the Plotly map.
  on(document, "ty-point", ({ detail }) => {
    if (s.data.canvas) return;
    s.cursor = detail.row < 0 ? null : { panel: detail.panel, row: detail.row, t: detail.t };
    const found = s.cursor ? find(s.data, s.cursor) : [];
    s.said = null;
    s.job = found[0];
    read(s, found);
    if (s.cursor) detail.text = instant(s.data, detail.t);
    detail.job = s.job === undefined ? -1 : s.data.jobs[s.data.panels[detail.panel].job[s.job]];
  });
  s.resized = new ResizeObserver(() => s.data?.canvas && Math.floor(s.root.clientWidth) !== s.width && draw(s));
  s.resized.observe(s.root);
  // frame.js writes the theme there.
  s.themed = new MutationObserver(() => s.data?.canvas && theme(s.root) !== s.theme && draw(s));
  s.themed.observe(document.documentElement, { attributes: true, attributeFilter: ["style"] });
  return s;
}

/** Arrow keys move the cursor by a node or a four-hundredth of the window, ten with Shift; Enter opens the widest job. */
function key(s, event) {
  if (event.target !== s.root || event.ctrlKey || event.metaKey || event.altKey) return;
  const { data } = s, [t0, t1] = data.window, many = event.shiftKey ? 10 : 1, step = ((t1 - t0) / 400) * many;
  const { panel, row, t } = s.cursor ?? { panel: 0, row: 0, t: (t0 + t1) / 2 };
  const to = { ArrowLeft: [row, t - step], ArrowRight: [row, t + step], ArrowUp: [row - many, t], ArrowDown: [row + many, t], Home: [row, t0], End: [row, t1] }[event.key];
  if (event.key === "Enter" && s.cursor) open(s, s.job);
  else if (!to) return;
  else {
    // Below the last node of a policy are the nodes of the next one.
    const at = limit(panel * data.rows.length + to[0], 0, data.panels.length * data.rows.length - 1);
    move(s, { panel: Math.floor(at / data.rows.length), row: at % data.rows.length, t: limit(to[1], t0, t1) }, true);
    s.pinned = s.cursor;
    if (!data.canvas) document.dispatchEvent(new CustomEvent("ty-cursor", { detail: { ...s.cursor, text: instant(data, s.cursor.t) } }));
  }
  event.preventDefault();
}
