"""What is measured in a page by computed styles and boxes: contrast of texts and lines, texts that
lie on each other, charts that are too narrow.
"""

from __future__ import annotations

from contextlib import suppress

from playwright.sync_api import Page, TimeoutError

MIN_CHART_PX = 300
FITS = (
    "() => [document.documentElement, document.querySelector('[data-testid=stMain]')].every(part =>"
    " part.scrollWidth <= part.clientWidth)"
)
"""Nothing is wider than the window; a figure is as wide as usual until it has seen its place."""

_COMMON = """
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const known = new Map();
  const rgba = (text) => {
    if (!known.has(text)) {
      canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      known.set(text, [r, g, b, a / 255]);
    }
    return known.get(text);
  };
  const over = (under, [r, g, b, a], share = 1) =>
    under.map((value, at) => value + ([r, g, b][at] - value) * a * share);
  const light = (colour) => {
    const [r, g, b] = colour.map(v =>
      (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => {
    const [a, b] = [light(one), light(other)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const ancestors = (node) => node ? [...ancestors(node.parentElement), node] : [];
  const opacity = (node) =>
    ancestors(node).reduce((share, one) => share * getComputedStyle(one).opacity, 1);
  // What lies under a place: the grounds of all that holds it, and in a figure the shapes below it.
  const ground = (node, box) => {
    let colour = ancestors(node).filter(one => !(one instanceof SVGElement)).reduce(
      (under, one) => over(under, rgba(getComputedStyle(one).backgroundColor)), [255, 255, 255]);
    const x = box.left + box.width / 2, y = box.top + box.height / 2;
    const shapes = node instanceof SVGElement ? node.closest('.js-plotly-plot') : null;
    for (const shape of shapes?.querySelectorAll(SHAPES) ?? []) {
      const own = shape.getBoundingClientRect(), style = getComputedStyle(shape);
      const inside = own.left <= x && x <= own.right && own.top <= y && y <= own.bottom;
      if (inside && style.fill !== 'none')
        colour = over(colour, rgba(style.fill), style.fillOpacity * opacity(shape));
    }
    return colour;
  };
  const shown = (node) => node.checkVisibility({opacityProperty: true, visibilityProperty: true});
  const SHAPES = '.bars path, .shapelayer path, .annotation rect.bg, .legend rect.bg';
  // Neither drawn for eyes, nor ours: the scripts, what is only read aloud, icons of Streamlit.
  const UNSEEN = `script, style, noscript, header [role=img], [aria-live]:not([role]), .sr, .said,
    .hoverlayer, math`;
  const texts = () => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
    while (walker.nextNode()) {
      const text = walker.currentNode.textContent.trim(), node = walker.currentNode.parentElement;
      if (!text || !shown(node) || node.closest(UNSEEN)) continue;
      const range = document.createRange();
      range.selectNodeContents(walker.currentNode);
      for (const box of range.getClientRects())
        if (box.width > 1 && box.height > 1) found.push({text, node, box});
    }
    return found;
  };
"""
_CONTRAST = (
    "() => {"
    + _COMMON
    + """
  const low = new Set();
  for (const {text, node, box} of texts()) {
    if (node.closest(':disabled, [aria-disabled=true]')) continue;
    const style = getComputedStyle(node), under = ground(node, box);
    const [colour, share] = node instanceof SVGElement
      ? [style.fill, style.fillOpacity] : [style.color, 1];
    const found = ratio(over(under, rgba(colour), opacity(node) * share), under);
    const least = node.closest('[data-testid=stIconMaterial]') ? 3 : 4.5;
    if (found < least) low.add(`${text.slice(0, 40)}: ${found.toFixed(2)}`);
  }
  for (const line of document.querySelectorAll('.js-plotly-plot .js-line, .ty-ledger tbody i')) {
    if (!shown(line) || opacity(line) < 1) continue;
    // A box is filled with its own color.
    const drawn = line instanceof SVGElement, around = drawn ? line : line.parentElement;
    const style = getComputedStyle(line), under = ground(around, line.getBoundingClientRect());
    const name = drawn ? style.stroke : style.borderTopColor, colour = rgba(name);
    if (drawn && !(colour[3] * style.strokeOpacity * parseFloat(style.strokeWidth))) continue;
    const found = ratio(over(under, colour, drawn ? style.strokeOpacity : 1), under);
    if (found < 3) low.add(`line ${name}: ${found.toFixed(2)}`);
  }
  return [...low];
}"""
)
_LAYOUT = (
    "(least) => {"
    + _COMMON
    + """
  const wrong = new Set(), main = document.querySelector('[data-testid=stMain]');
  // What stays in place while other things roll below it may lie on them.
  const floats = (node) => ancestors(node).some(one =>
    one.tagName === 'HEADER' || ['fixed', 'sticky'].includes(getComputedStyle(one).position));
  for (const part of [document.documentElement, main])
    if (part.scrollWidth > part.clientWidth)
      wrong.add(`sideways: ${part.scrollWidth} of ${part.clientWidth} px`);
  for (const chart of document.querySelectorAll('.js-plotly-plot')) {
    const box = chart.getBoundingClientRect();
    if (shown(chart) && box.width && box.width < least) wrong.add(`chart of ${box.width} px`);
  }
  // The visible part of each text: what is cut by its box is not on what lies beside.
  const boxes = texts().map(({text, node, box}) => {
    let {left, right, top, bottom} = box;
    for (const one of ancestors(node)) {
      if (one.contains(main) || getComputedStyle(one).overflowX === 'visible') continue;
      if (one instanceof SVGElement && one.tagName !== 'svg') continue;
      const own = one.getBoundingClientRect();
      left = Math.max(left, own.left); right = Math.min(right, own.right);
      top = Math.max(top, own.top); bottom = Math.min(bottom, own.bottom);
    }
    // Lines of text are higher than their letters.
    const trim = (bottom - top) * 0.2;
    return {text, node, left: left + 1, right: right - 1, top: top + trim, bottom: bottom - trim};
  }).filter(one => one.right > one.left && one.bottom > one.top && !floats(one.node));
  boxes.forEach((one, at) => boxes.slice(at + 1).forEach(other => {
    const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
    const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
    // Labels in a figure are apart by a gap; words of one sentence follow each other.
    const figures = one.node instanceof SVGElement && other.node instanceof SVGElement;
    const same = one.node === other.node || one.node.closest('text')?.contains(other.node);
    if (wide > (figures ? -4 : 0) && high > 0 && !same)
      wrong.add(`"${one.text.slice(0, 30)}" on "${other.text.slice(0, 30)}", ${wide} x ${high}`);
  }));
  return [...wrong];
}"""
)


def low_contrast(page: Page) -> list[str]:
    """Return texts below 4.5 : 1, icons and strong lines below 3 : 1."""
    return list(page.evaluate(_CONTRAST))


def misplaced(page: Page) -> list[str]:
    """Return what stays wider than the window, too narrow or on something else.

    Charts take their width a moment after the window has changed its own.
    """
    with suppress(TimeoutError):
        page.wait_for_function(f"least => !({_LAYOUT})(least).length", arg=MIN_CHART_PX)
    return list(page.evaluate(_LAYOUT, MIN_CHART_PX))
