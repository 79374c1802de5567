// A slider that asks while it moves: one question is under way at a time, the latest value goes next, and a slow
// answer is overtaken. Names of settings are foreign text and reach the page through textContent only. It is put into
// the page once, because what a component brings with it is sent again whenever it is drawn.
(() => {
if (window.trainyardSlider) return;
const states = new WeakMap();
const SLOW_MS = 250, REST_MS = 700;

window.trainyardSlider = ({ data, parentElement, setTriggerValue }) => {
  const root = parentElement.querySelector(".ty-what-if");
  if (!states.has(root)) states.set(root, listen({ root, names: root.querySelector("select"), range: root.querySelector("input"), text: root.querySelector("output"), was: root.querySelector("datalist"), ends: root.querySelectorAll("small"), seq: 0, end: new AbortController() }));
  const s = Object.assign(states.get(root), { data, send: setTriggerValue });
  const titles = JSON.stringify(data.axes.map((axis) => axis.title));
  if (s.titles !== titles) {
    s.titles = titles;
    s.names.replaceChildren(...data.axes.map((axis) => Object.assign(document.createElement("option"), { textContent: axis.title })));
    s.names.selectedIndex = Math.max(data.axes.findIndex((axis) => axis.path === (s.path ?? data.path)), 0);
  }
  s.names.disabled = data.axes.length < 2;
  if (!busy(s)) show(s);
  if (data.seq >= s.seq) (s.waiting = false), ask(s);
  return () => setTimeout(() => root.isConnected || (clearTimeout(s.late), clearTimeout(s.still), s.end.abort()));
};

const axis = (s) => s.data.axes[Math.max(s.names.selectedIndex, 0)];
const busy = (s) => s.held || s.wanted || s.still;

function show(s, value = axis(s).now) {
  const { low, high, step, title, digits } = axis(s);
  [low, high].forEach((end, at) => (s.ends[at].textContent = Number(end).toFixed(digits)));
  Object.assign(s.range, { min: low, max: high, step });
  s.range.value = value;
  s.range.setAttribute("aria-label", title);
  s.was.replaceChildren(...(axis(s).was == null || axis(s).was === axis(s).now ? [] : [Object.assign(document.createElement("option"), { value: axis(s).was })]));
  write(s);
}

function write(s) {
  const { before, digits } = axis(s), text = `${before}${Number(s.range.value).toFixed(digits)}`;
  s.text.textContent = text;
  s.range.setAttribute("aria-valuetext", text);
}

function ask(s) {
  clearTimeout(s.late);
  if (!s.wanted) return;
  const left = s.waiting ? s.sent + SLOW_MS - performance.now() : 0;
  if (left > 0) return void (s.late = setTimeout(() => ask(s), left));
  send(s, "move", s.wanted);
}

function send(s, name, value) {
  Object.assign(s, { wanted: null, waiting: true, sent: performance.now() });
  s.send(name, { ...value, seq: ++s.seq });
}

function rest(s) {
  clearTimeout(s.still), clearTimeout(s.late);
  s.still = null;
  send(s, "rest", { path: axis(s).path, value: Number(s.range.value) });
}

function listen(s) {
  const on = (target, name, act) => target.addEventListener(name, act, { signal: s.end.signal });
  on(s.range, "pointerdown", () => (s.held = true));
  for (const name of ["pointerup", "pointercancel"]) on(document, name, () => (s.held = false));
  on(s.range, "input", () => {
    write(s), (s.path = axis(s).path);
    s.wanted = { path: s.path, value: Number(s.range.value) };
    ask(s);
  });
  // By keys a value is at rest when no key follows for a while.
  on(s.range, "change", () => {
    clearTimeout(s.still);
    if (s.keys) s.still = setTimeout(() => rest(s), REST_MS);
    else rest(s);
  });
  on(s.range, "keydown", (event) => {
    s.keys = true;
    const way = { ArrowUp: -1, ArrowDown: 1 }[event.key], to = s.names.selectedIndex + way;
    if (!way) return;
    event.preventDefault();
    if (to >= 0 && to < s.data.axes.length) choose(s, to);
  });
  on(s.range, "pointermove", () => s.held && (s.keys = false));
  on(s.range, "pointerdown", () => (s.keys = false));
  on(s.range, "blur", () => s.still && rest(s));
  on(s.names, "change", () => choose(s, s.names.selectedIndex));
  return s;
}

function choose(s, at) {
  if (s.still) rest(s);
  s.names.selectedIndex = at;
  s.path = axis(s).path;
  show(s);
}
})();
