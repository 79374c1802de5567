// The list of policies: one tab stop with a search field. Titles may be foreign text and reach the
// page through textContent only. What was ticked here and not yet answered is kept over updates.
const states = new WeakMap();
const tag = (name, kind = "", text = "", more = {}) => Object.assign(document.createElement(name), { className: kind, textContent: text }, more);

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".ty-policies");
  if (!states.has(root)) states.set(root, listen({ root, list: root.querySelector(".list"), field: root.querySelector("input"), sent: data.answered, wanted: {}, at: data.open, end: new AbortController() }));
  const s = Object.assign(states.get(root), { data, send: setTriggerValue });
  if (data.answered >= s.sent) s.wanted = {};
  draw(s);
  // Of two calls in a row the first may be cleaned up while its place stays.
  return () => setTimeout(() => root.isConnected || s.end.abort());
}

function draw(s) {
  const needle = s.field.value.trim().toLowerCase();
  const fits = (row) => `${row.title} ${row.brief} ${row.note}`.toLowerCase().includes(needle);
  s.rows = [];
  const groups = s.data.groups.map((group) => {
    const rows = group.rows.filter(fits);
    s.rows.push(...rows);
    return rows.length ? [head(group, s.rows.length === rows.length ? s.data.results : ""), ...rows.map((row) => line(s, row))] : [];
  });
  s.list.replaceChildren(...groups.flat());
  s.root.querySelector(".none").hidden = s.rows.length > 0;
  if (!s.rows.some((row) => row.id === s.at)) s.at = s.rows[0]?.id ?? "";
  mark(s);
}

// The first heading also names the column of results.
function head(group, results) {
  const made = tag("div", "group", group.title, { role: "presentation" });
  made.append(tag("span", "", group.about), tag("span", "results", results));
  return made;
}

const on = (s, row) => s.wanted[row.id] ?? row.on;
const nodeId = (row) => `policy-${row.id}`;

function line(s, row) {
  const made = tag("div", "row", "", { id: nodeId(row), role: "option", title: row.full });
  for (const [name, is] of [["on", on(s, row)], ["barred", row.barred], ["variant", row.variant], ["open", row.id === s.data.open]]) made.classList.toggle(name, is);
  made.dataset.id = row.id;
  made.style.setProperty("--own", row.colour || "");
  made.setAttribute("aria-selected", on(s, row));
  made.setAttribute("aria-label", [row.title, row.brief, on(s, row) ? "compared" : row.barred ? `cannot be compared: ${row.note}` : "not compared", row.barred ? "" : row.note, row.change].filter(Boolean).join(", "));
  if (row.barred && !on(s, row)) made.setAttribute("aria-disabled", "true");
  made.append(tag("i", "tick"), tag("b", "", row.title), tag("span", "brief", row.brief), tag("span", row.barred ? "note why" : row.old ? "note old" : "note", row.note), row.barred ? "" : tag("span", row.old ? "change old" : "change", row.change));
  return made;
}

function mark(s) {
  for (const node of s.list.querySelectorAll(".row")) node.classList.toggle("at", node.dataset.id === s.at);
  const here = s.list.querySelector(".row.at");
  here ? s.list.setAttribute("aria-activedescendant", here.id) : s.list.removeAttribute("aria-activedescendant");
}

function move(s, to) {
  s.at = s.rows[Math.min(Math.max(to, 0), s.rows.length - 1)]?.id ?? "";
  mark(s);
  s.list.querySelector(".row.at")?.scrollIntoView({ block: "nearest" });
}

function tick(s, id) {
  const row = s.rows.find((one) => one.id === id), count = s.data.groups.flatMap((group) => group.rows).filter((one) => on(s, one)).length;
  const say = (text) => (s.root.querySelector(".said").textContent = text);
  if (!row) return;
  if (row.barred && !on(s, row)) return say(`${row.title}: ${row.note}`);
  if (on(s, row) && count === 1) return say("At least one policy stays in the comparison.");
  s.wanted[id] = !on(s, row);
  s.data.open = s.at = id;
  say(`${row.title} ${s.wanted[id] ? "is" : "is not"} compared.`);
  draw(s);
  post(s);
}

function open(s, id) {
  if (!id) return;
  s.data.open = s.at = id;
  draw(s);
  post(s);
  // Below each other the detail would be out of sight.
  const detail = document.querySelector(".st-key-policy_detail");
  if (detail && detail.getBoundingClientRect().top > s.list.getBoundingClientRect().bottom) detail.scrollIntoView({ block: "start" });
}

function post(s) {
  // All that is not answered yet goes along: of two messages in a row the server may see the last only.
  s.send("did", { number: ++s.sent, ticks: { ...s.wanted }, open: s.data.open });
}

function listen(s) {
  const at = () => s.rows.findIndex((row) => row.id === s.at);
  const hear = (target, name, act) => target.addEventListener(name, act, { signal: s.end.signal });
  const act = {
    ArrowDown: () => move(s, at() + 1), ArrowUp: () => move(s, at() - 1),
    PageDown: () => move(s, at() + 10), PageUp: () => move(s, at() - 10),
    Home: () => move(s, 0), End: () => move(s, s.rows.length - 1),
    " ": () => tick(s, s.at), Enter: () => open(s, s.at),
  };
  hear(s.list, "keydown", (event) => act[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey && (event.preventDefault(), act[event.key]()));
  hear(s.list, "click", (event) => {
    const id = event.target.closest(".row")?.dataset.id;
    if (!id) return;
    s.at = id;
    event.target.closest(".tick") ? tick(s, id) : open(s, id);
    mark(s);
  });
  hear(s.field, "input", () => draw(s));
  hear(s.field, "keydown", (event) => {
    if (event.key === "Escape") (s.field.value = ""), draw(s);
    else if (event.key !== "ArrowDown" && event.key !== "Enter") return;
    event.preventDefault();
    s.list.focus();
    mark(s);
  });
  hear(document, "keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable=true]")) return;
    event.preventDefault();
    s.field.focus();
  });
  return s;
}
