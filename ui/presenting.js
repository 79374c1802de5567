// Keys of the presentation mode, and type as large as the window allows.
const KEYS = {
  ArrowRight: "right", ArrowLeft: "left", ArrowDown: "down", PageDown: "down", ArrowUp: "up", PageUp: "up",
  Escape: "leave",
};
const WIDTH = 1240, HEIGHT = 800; // of what is shown, in its own pixels

export default function ({ data, setTriggerValue }) {
  const end = new AbortController(), root = document.documentElement;
  const fit = () => {
    root.style.setProperty("--ty-zoom", Math.max(Math.min(innerWidth / WIDTH, innerHeight / HEIGHT), 1).toFixed(3));
    const large = innerWidth >= WIDTH;
    if (large !== data.large) setTriggerValue("step", large ? "large_type" : "small_type");
  };
  const press = (event) => {
    const step = KEYS[event.key];
    // The answers of a lesson have arrows of their own.
    if (!step || event.target.closest?.("[role=radiogroup]") || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    setTriggerValue("step", step);
  };
  fit();
  addEventListener("resize", fit, { signal: end.signal });
  // Before the ledger, which has arrows of its own.
  document.addEventListener("keydown", press, { signal: end.signal, capture: true });
  // The line on the keys shows only while they are heard.
  root.classList.add("ty-keys");
  return () => {
    end.abort();
    root.classList.remove("ty-keys");
  };
}
