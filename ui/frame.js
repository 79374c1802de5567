// What the frame of every page does in the browser. It is put into the page once; its text is constant.
(() => {
  if (window.trainyardFrame) return;
  window.trainyardFrame = true;

  // Streamlit pushes an entry whenever parameters of the address change; Back is to lead to the page before, with one press.
  const push = history.pushState.bind(history), page = ({ pathname, searchParams }) => pathname + searchParams.get("doc");
  history.pushState = (state, title, url) =>
    page(new URL(url, location.href)) === page(new URL(location.href)) ? history.replaceState(state, title, url) : push(state, title, url);

  // Copy the link of the scenario, or the details of a fault.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.(".ty-link button, .ty-broken button");
    if (!button) return;
    const place = button.closest(".ty-link, .ty-broken"), field = place.querySelector("input"), details = place.querySelector("pre");
    if (field) field.select();
    else {
      place.querySelector("details").open = true;
      getSelection().selectAllChildren(details);
    }
    // Without a secure connection there is no clipboard to ask for.
    try { await navigator.clipboard.writeText(field ? field.value : details.textContent); } catch { document.execCommand("copy"); }
    button.textContent = field ? "Link copied" : "Details copied";
  });

  const typing = (element) => element.closest("input, textarea, select, [contenteditable=true]");
  document.addEventListener("keydown", (event) => {
    if (event.key === "?" && !event.ctrlKey && !event.metaKey && !event.altKey && !typing(event.target))
      document.querySelector(".st-key-keys button")?.click();
  });

  // A menu that is opened by a key hands the focus to its first field; it stands at the end of the page.
  document.addEventListener("click", (event) => {
    const menu = event.detail === 0 && event.target.closest?.("button[aria-haspopup=dialog]");
    if (!menu) return;
    const seek = (tries) => {
      const field = document.querySelector("[data-testid=stPopoverBody] :is(input, textarea, select, button, a):not(:disabled, [tabindex='-1'], [aria-label^='Help for'])");
      if (menu.getAttribute("aria-expanded") !== "true" && tries < 55) return;
      if (field) field.focus();
      else if (tries) requestAnimationFrame(() => seek(tries - 1));
    };
    requestAnimationFrame(() => seek(60));
  });

  // A row of jobs opens by a click anywhere on it and by Enter, as by its tick, which the grid sets on Shift and Space.
  const JOBS = "[class*=st-key-job_rows-] [data-testid=stDataFrame]";
  const [TICKS_PX, HEAD_PX] = [48, 36];
  const tick = (table) =>
    table.contains(document.activeElement) &&
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: " ", code: "Space", keyCode: 32, shiftKey: true, bubbles: true, cancelable: true }));
  document.addEventListener("click", (event) => {
    const table = event.target.closest?.(JOBS), box = table?.getBoundingClientRect();
    if (table && event.clientX - box.left > TICKS_PX && event.clientY - box.top > HEAD_PX) requestAnimationFrame(() => tick(table));
  });
  document.addEventListener("keydown", (event) => {
    const table = event.key === "Enter" && !typing(event.target) && event.target.closest(JOBS);
    if (!table) return;
    // The grid itself would show the text of the cell in a box.
    event.stopPropagation();
    event.preventDefault();
    tick(table);
  }, true);

  // The links of the pages, and the chips of the scenario, are one stop of the keyboard each, with arrows inside.
  const BARS = { ".st-key-navigation": ["navigation", "a"], ".st-key-chips": ["toolbar", "button[aria-haspopup=dialog]"] };
  const members = (bar) => [...document.querySelectorAll(`${bar} ${BARS[bar][1]}`)];
  const barOf = (element) => Object.keys(BARS).find((bar) => members(bar).includes(element));
  const rove = (bar, to) => {
    const all = members(bar), held = all.find((one) => one === document.activeElement);
    const own = to ?? held ?? all.find((one) => one.ariaCurrent) ?? all.find((one) => one.tabIndex === 0) ?? all[0];
    document.querySelector(bar)?.setAttribute("role", BARS[bar][0]);
    for (const one of all) one.tabIndex = one === own ? 0 : -1;
  };
  document.addEventListener("focusin", (event) => {
    const bar = barOf(event.target);
    if (bar) rove(bar, event.target);
  });
  document.addEventListener("keydown", (event) => {
    const bar = barOf(event.target), all = bar ? members(bar) : [], at = all.indexOf(event.target);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || !all[to]) return;
    event.preventDefault();
    all[to].focus();
  });

  // What is drawn anew while it has the focus gives it to what stands in its place; what is gone for good gives it to
  // what held it, to where the focus was before a drawer opened, or to the status of the runs; a presentation that begins
  // takes it, since its arrows are not those of a field.
  const FIELDS = ":is(button, input, select, textarea, a, [tabindex='0']):not(:disabled)";
  const first = (place) => [...document.querySelectorAll(`${place} ${FIELDS}`)].find((one) => one.checkVisibility());
  let [last, places, outside] = [null, [], []];
  document.addEventListener("focusin", (event) => {
    last = event.target;
    places = [];
    for (let part = last; part; part = part.parentElement)
      for (const name of part.classList)
        // What is drawn anew under the next number is the same.
        if (name.startsWith("st-key-")) places.push(/-\d+$/.test(name) ? `[class*="${name.replace(/\d+$/, "")}"]` : `.${CSS.escape(name)}`);
    if (!last.closest("[role=dialog]")) outside = places;
  });
  document.addEventListener("pointerdown", () => { last = null; });
  setInterval(() => {
    if (!last || document.activeElement !== document.body || (last.checkVisibility() && !last.disabled)) return;
    const drawing = document.querySelector("[data-testid=stApp][data-test-script-state=running]");
    for (const place of drawing ? places.slice(0, 1) : [".st-key-presenting_leave", ...places, ...outside, ".st-key-status"]) {
      const found = first(place);
      if (found) return found.focus({ preventScroll: true });
    }
  }, 200);

  // A saved picture has neither the table below it nor the fonts of the page: it gets a source, a background, a font that
  // is measured and drawn alike, and the names of lines that have none beside them. Plotly copies what it saves at once.
  const SAVE = ".modebar-btn[data-title^='Download plot']", LEGEND_PX = 36, SOURCE_PX = 24, family = "Arial, Helvetica, sans-serif";
  const named = (trace) => trace.legendgroup && (trace.yaxis ?? "y") === "y";
  const preparePicture = (chart) => {
    const { data, layout } = chart, options = chart._context.toImageButtonOptions, lines = data.filter(named);
    const page = getComputedStyle(document.querySelector("[data-testid=stApp]")), { height, _size: { l, b } } = chart._fullLayout;
    const font = { ...layout.font, family }, title = { ...layout.title, font: { ...layout.title?.font, family } };
    const margin = { ...layout.margin, b: b + SOURCE_PX }, text = [layout.meta?.source, "Trainyard"].filter(Boolean).join(" · ");
    const source = { text, showarrow: false, xref: "paper", yref: "paper", x: 0, y: 0, xanchor: "left", yanchor: "top", xshift: 8 - l, yshift: -b - 2, font: { size: 13 } };
    chart.layout = { ...layout, font, title, margin, annotations: [...(layout.annotations ?? []), source], paper_bgcolor: page.backgroundColor };
    options.height = height + SOURCE_PX;
    if (layout.showlegend === false && lines.length > 1 && !layout.annotations?.some(({ name }) => name)) {
      chart.data = data.map((trace) => (named(trace) ? { ...trace, showlegend: true } : trace));
      chart.layout.showlegend = true;
      margin.t = (margin.t ?? 0) + LEGEND_PX;
      chart.layout.legend = { orientation: "h", x: 0, y: 1, xanchor: "left", yanchor: "bottom", ...layout.legend };
      options.height += LEGEND_PX;
    }
    setTimeout(() => { Object.assign(chart, { data, layout }), delete options.height; });
    return { format: "png", scale: options.scale, width: chart._fullLayout.width, height: options.height };
  };
  const copyPicture = async (chart, button) => {
    const picture = window.Plotly.toImage(chart, preparePicture(chart)).then(async (url) => (await fetch(url)).blob());
    try {
      await navigator.clipboard.write([new ClipboardItem({ "image/png": picture })]);
      button.dataset.title = "Copied";
    } catch { button.dataset.title = "The browser allowed no copy"; }
    setTimeout(() => { button.dataset.title = "Copy image"; }, 3000);
  };
  document.addEventListener("click", (event) => {
    const chart = event.target.closest?.(SAVE)?.closest(".js-plotly-plot");
    if (chart) preparePicture(chart);
  }, true);
  // Plotly knows no button for this; it draws its own anew with the chart.
  const offerCopy = (event) => {
    const chart = event.target.closest?.(".js-plotly-plot"), save = chart?.querySelector(SAVE);
    if (!save || !window.Plotly || save.nextElementSibling?.matches(".ty-copy")) return;
    const button = save.cloneNode();
    button.append(Object.assign(document.createElement("span"), { className: "ty-icon", textContent: "content_copy" }));
    button.classList.add("ty-copy");
    button.style.color = getComputedStyle(save.querySelector("path")).fill;
    button.dataset.title = button.ariaLabel = "Copy image";
    button.addEventListener("click", () => copyPicture(chart, button));
    save.after(button);
  };
  document.addEventListener("pointerover", offerCopy);
  document.addEventListener("focusin", offerCopy);

  // A link of the documentation is followed as its list of pages follows it, within this session.
  document.addEventListener("click", (event) => {
    const target = event.target.closest?.(".st-key-docs_text a[href*='docs?doc=']"), page = (link) => new URL(link.href).searchParams.get("doc");
    const own = target && [...document.querySelectorAll(".st-key-docs_list a")].find((link) => page(link) === page(target));
    if (!own || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    own.click();
  });

  // Streamlit shows the current page by color alone, and leads to the first one by an empty address.
  const markPage = () => {
    for (const link of document.querySelectorAll(".st-key-navigation a")) {
      if (!link.getAttribute("href")) link.setAttribute("href", "./");
      const current = new URL(link.href).pathname === location.pathname;
      if (current === link.hasAttribute("aria-current")) continue;
      link.toggleAttribute("aria-current", current);
      if (current) link.setAttribute("aria-current", "page"), link.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
  };

  // Lessons that were run in this browser, by number; without storage none is marked.
  const LESSONS = "ty-lessons";
  const markLessons = () => {
    const lessons = [...document.querySelectorAll(".st-key-lesson_list [role=radiogroup] label")];
    if (!lessons.length) return;
    const run = document.querySelector(".ty-lesson-run")?.dataset.lesson, done = new Set();
    try {
      for (const one of JSON.parse(localStorage.getItem(LESSONS)) ?? []) done.add(String(one));
      if (run && !done.has(run)) localStorage.setItem(LESSONS, JSON.stringify([...done.add(run)]));
    } catch {}
    lessons.forEach((lesson, at) => lesson.classList.toggle("ty-done", done.has(String(at))));
    const line = document.querySelector(".ty-lessons-done"), text = `${document.querySelectorAll("label.ty-done").length} of ${lessons.length} lessons done`;
    if (line && line.textContent !== text) line.textContent = text;
  };

  // A lost connection is a line under the bar; what is shown stays readable, so Streamlit's dialog on it is closed.
  const DIALOG = /^\s*Connection (error|timed out)/;
  let lostAt = 0;
  const watch = () => {
    markPage();
    Object.keys(BARS).forEach((bar) => rove(bar));
    markLessons();
    const app = document.querySelector("[data-testid=stApp]");
    // Menus and dialogs stand outside the app, and are to have its light or dark colours.
    if (app) document.documentElement.style.colorScheme = getComputedStyle(app).colorScheme;
    const lost = app && app.dataset.testConnectionState !== "CONNECTED";
    lostAt = lost ? lostAt || Date.now() : 0;
    document.documentElement.classList.toggle("ty-lost", Boolean(lost) && Date.now() - lostAt > 1500);
    if (!lost) return;
    for (const dialog of document.querySelectorAll("[data-testid=stDialog]"))
      if (DIALOG.test(dialog.innerText)) dialog.querySelector("button[aria-label=Close]")?.click();
  };
  watch();
  setInterval(watch, 500);
  new MutationObserver(watch).observe(document.body, { childList: true });
})();
