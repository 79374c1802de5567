"use strict";
// Draws the figures from the data block beside this script; nothing is loaded and nothing leaves the page.
(() => {
  const source = document.getElementById("figures").textContent;
  const palette = JSON.parse(document.getElementById("palette").textContent);
  const colours = new RegExp(Object.keys(palette.dark).map((one) => one.replace(/[()]/g, "\\$&")).join("|"), "g");
  const figures = {
    light: JSON.parse(source),
    dark: JSON.parse(source.replace(colours, (found) => palette.dark[found])),
    // Paper may have no colours: there lines differ by their dashes.
    print: JSON.parse(source),
  };
  for (const figure of Object.values(figures.print)) {
    for (const { line } of [...figure.data, ...(figure.layout.shapes || [])]) {
      const dash = line && palette.dashes[line.color];
      if (dash && (line.dash || "solid") === "solid") line.dash = dash;
    }
  }
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const PAPER = { light: "#FFFFFF", dark: "#10161D", print: "#FFFFFF" };
  const PRINT_PX = 680;
  const family = getComputedStyle(document.body).fontFamily;

  const framed = (layout, tone) => ({
    ...layout,
    font: { ...layout.font, family },
    hoverlabel: { ...layout.hoverlabel, bgcolor: PAPER[tone], font: { ...(layout.hoverlabel || {}).font, color: layout.font.color } },
  });
  const plots = [...document.querySelectorAll(".plot")];
  const draw = (plot, tone, width) => {
    const figure = figures[tone][plot.id];
    const layout = { ...framed(figure.layout, tone), ...(width ? { width } : { autosize: true }) };
    return Plotly.react(plot, figure.data, layout, { responsive: true, displaylogo: false, displayModeBar: false });
  };
  const drawAll = () => Promise.all(plots.map((plot) => draw(plot, dark.matches ? "dark" : "light")));

  const save = (plot, format) => {
    // Saved pictures are on white, whatever the screen is like.
    const figure = figures.light[plot.id];
    const layout = { ...framed(figure.layout, "light"), paper_bgcolor: PAPER.light, plot_bgcolor: PAPER.light };
    return Plotly.downloadImage({ data: figure.data, layout }, {
      format, filename: "trainyard-" + plot.id, width: plot.clientWidth || 1000, height: figure.layout.height, scale: format === "png" ? 2 : 1,
    });
  };
  const saveText = (text, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.format) save(document.getElementById(button.dataset.plot), button.dataset.format);
    if (button.dataset.save) saveText(document.getElementById("scenario").textContent, "trainyard-scenario.json");
  });
  document.querySelectorAll("button[hidden]").forEach((button) => { button.hidden = false; });
  dark.addEventListener("change", drawAll);
  // A folded figure has no width to fill; a link into the appendix unfolds it.
  document.addEventListener("toggle", drawAll, true);
  addEventListener("hashchange", () => {
    const target = document.getElementById(location.hash.slice(1)), folded = target?.closest("details");
    if (folded && !folded.open) (folded.open = true), target.scrollIntoView();
  });
  addEventListener("beforeprint", () => plots.forEach((plot) => draw(plot, "print", PRINT_PX)));
  addEventListener("afterprint", drawAll);
  drawAll().then(() => { document.body.dataset.drawn = plots.length; });
})();
