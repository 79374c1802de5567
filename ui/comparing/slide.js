// Draws the slide of a comparison on a canvas of 1920 x 1080, and saves it as PNG or PDF, or copies it.
const WIDTH = 1920, HEIGHT = 1080, MARGIN = 72, GAP = 24;
const CHARTS = { y: 432, end: 982, widths: [1024, 728], height: 344 }; // `height` in pixels of the figures: what lies below is in the note
const LIGHT = { paper: "#FFFFFF", text: "#1B2430", second: "#5A6472", line: "#D5DBE3", better: "#005F94", worse: "#B34700" };
const DARK = { paper: "#10161D", text: "#E4E9EF", second: "#A9B4C0", line: "#323E4C", better: "#56B4E9", worse: "#FF9A5C" };

// A picture made of SVG does not see the fonts of the page, so it brings the one of the app along.
const fontFace = async () => {
  const loaded = performance.getEntriesByType("resource").find(({ name }) => /SourceSans[^/]*Upright[^/]*woff2/.test(name));
  if (!loaded) return "";
  const blob = await (await fetch(loaded.name)).blob();
  const url = await new Promise((done) => Object.assign(new FileReader(), { onload: (event) => done(event.target.result) }).readAsDataURL(blob));
  return `<style>@font-face { font-family: "Source Sans"; font-weight: 200 900; src: url("${url}"); }</style>`;
};

const chartImage = async ({ data, layout }, width, family, face) => {
  const size = { width, height: layout.height }, font = { ...layout.font, family };
  const url = await window.Plotly.toImage({ data, layout: { ...layout, ...size, font } }, { format: "svg", ...size });
  const svg = decodeURIComponent(url.slice(url.indexOf(",") + 1)).replace(/<svg [^>]*>/, (tag) => tag + face);
  const image = Object.assign(new Image(), { src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}` });
  await image.decode();
  return image;
};

// Two lines at most, broken after a semicolon if both parts fit.
const breakLines = (canvas, text, width) => {
  const fits = (line) => canvas.measureText(line).width <= width, at = text.indexOf("; ") + 1;
  if (fits(text)) return [text];
  if (at && fits(text.slice(0, at)) && fits(text.slice(at + 1))) return [text.slice(0, at), text.slice(at + 1)];
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (fits(longer) || !lines.at(-1)) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return [lines[0], lines.slice(1).join(" ")].filter(Boolean).map((line) => shorten(canvas, line, width));
};
const shorten = (canvas, text, width) => {
  if (canvas.measureText(text).width <= width) return text;
  if (canvas.measureText("…").width > width) return "";
  while (text && canvas.measureText(`${text}…`).width > width) text = text.slice(0, -1);
  return `${text.trimEnd()}…`;
};

const drawSlide = async (data) => {
  if (!window.Plotly) throw new Error("the charts of the page are not drawn yet");
  const colors = data.dark ? DARK : LIGHT, family = getComputedStyle(document.body).fontFamily;
  const page = Object.assign(document.createElement("canvas"), { width: WIDTH, height: HEIGHT }), canvas = page.getContext("2d");
  const write = (text, x, y, color, font, width = WIDTH) => {
    canvas.font = `${font} ${family}`;
    canvas.fillStyle = color;
    const shown = shorten(canvas, text, width);
    canvas.fillText(shown, x, y);
    return x + canvas.measureText(shown).width;
  };
  await Promise.all(["700 56px", "600 68px", "400 28px"].map((font) => document.fonts.load(`${font} ${family}`)));
  canvas.fillStyle = colors.paper;
  canvas.fillRect(0, 0, WIDTH, HEIGHT);

  canvas.font = `700 56px ${family}`;
  let y = 104, accented = false;
  for (const line of breakLines(canvas, data.headline, WIDTH - 2 * MARGIN)) {
    const at = data.high && !accented ? line.indexOf(data.high) : -1, end = at + data.high.length;
    accented ||= at >= 0;
    const parts = at < 0 ? [[line, colors.text]] : [[line.slice(0, at), colors.text], [line.slice(at, end), data.accent || colors.text], [line.slice(end), colors.text]];
    let x = MARGIN;
    for (const [text, color] of parts) x = write(text, x, y, color, "700 56px");
    y += 66;
  }
  write(data.facts, MARGIN, y - 14, colors.second, "400 30px", WIDTH - 2 * MARGIN);

  const width = (WIDTH - 2 * MARGIN - 2 * GAP) / 3, top = 250;
  data.tiles.forEach((tile, place) => {
    const left = MARGIN + place * (width + GAP), [change, verdict] = tile.lines[0] ?? ["", ""];
    canvas.strokeStyle = colors.line;
    canvas.lineWidth = 2;
    canvas.beginPath();
    canvas.roundRect(left, top, width, 170, 14);
    canvas.stroke();
    write(tile.title, left + 28, top + 42, colors.second, "400 30px", width - 56);
    const end = write(tile.value, left + 28, top + 108, colors.text, "600 68px");
    write(tile.base, end + 20, top + 108, colors.second, "400 30px", left + width - 28 - end - 20);
    write(change, left + 28, top + 150, colors[verdict] ?? colors.second, "400 30px", width - 56);
  });

  const face = await fontFace(), scale = (CHARTS.end - CHARTS.y) / CHARTS.height;
  for (const [place, chart] of data.charts.entries()) {
    const wide = CHARTS.widths[place], image = await chartImage(chart, Math.round(wide / scale), family, face);
    const left = place ? WIDTH - MARGIN - wide : MARGIN;
    canvas.drawImage(image, 0, 0, image.width, CHARTS.height, left, CHARTS.y, wide, CHARTS.end - CHARTS.y);
  }
  write(data.note, MARGIN, 1010, colors.second, "400 28px", WIDTH - 2 * MARGIN);
  canvas.fillStyle = colors.line;
  canvas.fillRect(MARGIN, 1024, WIDTH - 2 * MARGIN, 1);
  const date = new Date().toLocaleDateString("sv"); // 2026-01-31
  write(`${data.source} · ${date}`, MARGIN, 1058, colors.second, "400 28px", WIDTH - 2 * MARGIN - 200);
  canvas.textAlign = "right";
  write("Trainyard", WIDTH - MARGIN, 1058, colors.text, "700 28px");
  return page;
};

// A file of one page with the picture on it.
const pdfFile = async (page) => {
  const jpeg = new Uint8Array(await (await toBlob(page, "image/jpeg")).arrayBuffer());
  const place = `q 960 0 0 540 0 0 cm /Slide Do Q`;
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 960 540] /Contents 4 0 R /Resources << /XObject << /Slide 5 0 R >> >> >>",
    `<< /Length ${place.length} >>\nstream\n${place}\nendstream`,
    `<< /Type /XObject /Subtype /Image /Width ${WIDTH} /Height ${HEIGHT} /ColorSpace /DeviceRGB /BitsPerComponent 8 /Filter /DCTDecode /Length ${jpeg.length} >>\nstream\n`,
  ];
  const parts = ["%PDF-1.4\n"], offsets = [];
  let size = parts[0].length;
  const add = (part) => { parts.push(part); size += part.length; };
  objects.forEach((text, index) => {
    offsets.push(size);
    add(`${index + 1} 0 obj\n${text}`);
    if (index === 4) add(jpeg), add("\nendstream");
    add("\nendobj\n");
  });
  const table = offsets.map((offset) => `${String(offset).padStart(10, "0")} 00000 n \n`).join("");
  add(`xref\n0 6\n0000000000 65535 f \n${table}trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n${size}\n%%EOF\n`);
  return new Blob(parts, { type: "application/pdf" });
};

const toBlob = (page, type) => new Promise((done) => page.toBlob(done, type, 0.92));
const saveFile = (blob, name) => {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  return `Saved as ${name}.`;
};
const ACTIONS = {
  png: async (page) => saveFile(await toBlob(await page, "image/png"), "trainyard-slide.png"),
  pdf: async (page) => saveFile(await pdfFile(await page), "trainyard-slide.pdf"),
  copy: async (page) => {
    const blob = page.then((canvas) => toBlob(canvas, "image/png"));
    try {
      // Not after the drawing: browsers allow it shortly after a click only.
      await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
      return "Copied.";
    } catch {
      return `${saveFile(await blob, "trainyard-slide.png")} The browser allowed no copy.`;
    }
  },
};

export default ({ data, parentElement }) => {
  const root = parentElement.querySelector(".ty-slide"), status = root.querySelector("output");
  root.onclick = async ({ target }) => {
    const action = target.closest("button")?.dataset.way;
    if (!action || root.ariaBusy === "true") return;
    root.ariaBusy = "true";
    status.textContent = "Drawing the slide …";
    try {
      status.textContent = await ACTIONS[action](drawSlide(data));
    } catch (error) {
      status.textContent = `The slide cannot be drawn (${error.message}). Wait for the charts, then try again.`;
    }
    root.ariaBusy = "false";
  };
};
