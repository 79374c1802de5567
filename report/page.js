"use strict";
// Draws the figures from the data block beside this script; nothing is loaded and nothing leaves the page.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const LIGHT = { ink: "#1a1a1a", paper: "#ffffff" };
  const DARK = { ink: "#e8eaed", paper: "#101418" };
  const PRINT_PX = 680;
  const family = getComputedStyle(document.body).fontFamily;

  const coloured = (layout, tone) => ({
    ...layout,
    font: { ...layout.font, family, color: tone.ink },
    hoverlabel: { ...layout.hoverlabel, bgcolor: tone.paper, font: { ...(layout.hoverlabel || {}).font, color: tone.ink } },
  });
  const plots = [...document.querySelectorAll(".plot")];
  const draw = (plot, tone, width) => {
    const figure = figures[plot.id];
    const layout = { ...coloured(figure.layout, tone), ...(width ? { width } : { autosize: true }) };
    return Plotly.react(plot, figure.data, layout, { responsive: true, displaylogo: false, displayModeBar: false });
  };
  const drawAll = () => Promise.all(plots.map((plot) => draw(plot, dark.matches ? DARK : LIGHT)));

  const save = (plot, format) => {
    const figure = figures[plot.id];
    // Saved pictures are for paper, whatever the screen is like.
    const layout = { ...coloured(figure.layout, LIGHT), paper_bgcolor: LIGHT.paper, plot_bgcolor: LIGHT.paper };
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
  addEventListener("beforeprint", () => plots.forEach((plot) => draw(plot, LIGHT, PRINT_PX)));
  addEventListener("afterprint", drawAll);
  drawAll().then(() => { document.body.dataset.drawn = plots.length; });
})();
