// Six figures of the highlighted policy. Those that policies can be judged by are pressed; all of
// them together are one stop of the keyboard, with arrows inside.
// It is put into the page once, because what a component brings with it is sent again whenever it is drawn.
(() => {
if (window.trainyardTiles) return;
const tag = (name, kind, text = "") => Object.assign(document.createElement(name), { className: kind, textContent: text });

window.trainyardTiles = ({ data, parentElement, setTriggerValue }) => {
  const root = parentElement.querySelector(".ty-tiles");
  const focused = [...root.children].indexOf(document.activeElement);
  const chosen = Math.max(data.findIndex((one) => one.chosen), data.findIndex((one) => one.goal && !data.some((other) => other.chosen)));
  root.replaceChildren(...data.map((one, at) => {
    const tile = tag(one.goal ? "button" : "div", one.chosen ? "chosen" : "");
    const inside = tile.appendChild(tag("span", "inside"));
    inside.append(tag("span", "what", one.title));
    if (one.parts) {
      const bar = tag("span", "bar");
      bar.append(...["faster", "same", "slower"].map((name, part) => Object.assign(tag("i", name), { style: `flex-grow: ${one.parts[part]}` })));
      inside.append(bar);
    } else inside.append(tag("b", "", one.value), tag("small", "", one.base));
    inside.append(...one.lines.map(([text, kind]) => tag("em", kind, text)));
    tile.title = one.help;
    if (!one.goal) return tile;
    tile.ariaPressed = one.chosen;
    tile.tabIndex = at === chosen ? 0 : -1;
    tile.onclick = () => setTriggerValue("goal", one.goal);
    return tile;
  }));
  if (focused >= 0) root.children[Math.min(focused, data.length - 1)].focus();
  root.onkeydown = (event) => {
    const buttons = [...root.querySelectorAll("button")], step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) buttons[(buttons.indexOf(event.target) + step + buttons.length) % buttons.length]?.focus();
  };
};
})();
