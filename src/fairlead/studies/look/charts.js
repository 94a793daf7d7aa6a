// Charts as SVG: panels with lines, points, bars and spans. Names in the legend hide and show what they name; a range
// of x that is marked with the pointer is enlarged, and a double click shows everything again.
"use strict";

const DASHES = { solid: "", dash: "7 5", dot: "2 4", dashdot: "8 4 2 4" };
const SHAPES = {
  circle: "M0-5A5 5 0 1 1 0 5A5 5 0 1 1 0-5Z", square: "M-4.5-4.5H4.5V4.5H-4.5Z", diamond: "M0-6L6 0L0 6L-6 0Z",
  "triangle-up": "M0-6L6 5H-6Z", "triangle-down": "M0 6L6-5H-6Z", cross: "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
  x: "M-5-3L-3-5L0-2L3-5L5-3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z", star: "M0-7L2-2L7-2L3 1L4 6L0 3L-4 6L-3 1L-7-2L-2-2Z",
};
const EXPORTED = "text{font:12px system-ui,sans-serif;fill:#333}.title{font-weight:600}.grid{stroke:#ddd}.edge{stroke:#888}.mark{fill:none;stroke-width:1.8}";
const chartState = new Map(); // element -> hidden names, range of x, chart

const shade = (hex) => `var(--s-${hex.slice(1).toLowerCase()}, ${hex})`;
const short = (value) => (value === 0 ? "0" : Math.abs(value) >= 1e4 || Math.abs(value) < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3))));

function svg(name, attributes, parent, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, given] of Object.entries(attributes)) made.setAttribute(key, given);
  if (text !== undefined) made.textContent = text;
  parent?.append(made);
  return made;
}

function drawChart(element, chart) {
  if (!element || !chart) return;
  if (!chartState.has(element)) {
    chartState.set(element, { hidden: new Set(), range: null, width: 0 });
    new ResizeObserver(() => element.clientWidth !== chartState.get(element).width && redraw(element)).observe(element);
  }
  Object.assign(chartState.get(element), { chart, range: null });
  redraw(element);
}

function redraw(element) {
  const state = chartState.get(element);
  const { chart, hidden } = state;
  const width = (state.width = element.clientWidth);
  const columns = Math.min(width < 640 ? 1 : (chart.columns ?? 1), chart.panels.length || 1);
  const box = { left: chart.left ?? 58, right: 14, top: chart.panels.some((one) => one.title) ? 26 : 12, bottom: chart.bottom ?? 42 };
  const cell = { width: width / columns, height: box.top + chart.height + box.bottom };
  const rows = Math.ceil(chart.panels.length / columns);
  const picture = svg("svg", { class: "drawn", width, height: rows * cell.height, viewBox: `0 0 ${width} ${rows * cell.height}`, role: "img", "aria-label": chart.label });
  chart.panels.forEach((panel, k) => {
    const place = { x: (k % columns) * cell.width + box.left, y: Math.floor(k / columns) * cell.height + box.top, width: cell.width - box.left - box.right, height: chart.height };
    if (place.width < 20) return;
    const series = chart.series.filter((one) => (one.panel ?? 0) === k && !hidden.has(one.name));
    drawPanel(picture, panel, place, series, state, element);
  });
  element.replaceChildren(tools(element, chart), picture, legend(element, chart));
}

function drawPanel(picture, panel, place, series, state, element) {
  const group = svg("g", { transform: `translate(${place.x} ${place.y})`, class: "panel" }, picture);
  const x = scale({ ...panel.x, range: state.range ?? panel.x.range }, 0, place.width);
  const y = scale(panel.y, panel.y.down ? 0 : place.height, panel.y.down ? place.height : 0);
  const clip = `clip-${element.id}-${place.x}-${place.y}`.replace(/[^\w-]/g, "_");
  svg("rect", { width: place.width, height: place.height }, svg("clipPath", { id: clip }, group));
  drawAxes(group, panel, place, x, y);
  if (!panel.x.names) addZoom(group, place, x, state, element); // below what is drawn, which has words of its own
  const inside = svg("g", { "clip-path": `url(#${clip})` }, group);
  for (const at of panel.lines ?? []) svg("line", { class: "edge", x1: x.at(at), x2: x.at(at), y1: 0, y2: place.height, "stroke-dasharray": "2 4" }, inside);
  for (const one of series) DRAWERS[one.kind](inside, one, x, y, place, group);
}

function scale(axis, from, to) {
  if (axis.names) {
    const step = (to - from) / axis.names.length;
    return { at: (index) => from + (index + 0.5) * step, ticks: axis.names.map((name, index) => [index, name]), step: Math.abs(step) };
  }
  const f = axis.log ? Math.log10 : (v) => v;
  const [low, high] = axis.range;
  const [a, b] = [f(low), f(high) > f(low) ? f(high) : f(low) + 1];
  const back = (pixel) => a + ((pixel - from) / (to - from)) * (b - a);
  const room = Math.abs(to - from);
  const all = axis.ticks && (!axis.log || axis.ticks.filter(([v]) => v >= low && v <= high).length > 1) ? axis.ticks : niceTicks(low, high, room / 70);
  const ticks = all.filter(([v]) => v >= low - 1e-9 && v <= high * (1 + 1e-9));
  return { at: (v) => from + ((f(Math.max(v, axis.log ? low / 1e3 : v)) - a) / (b - a)) * (to - from), back: (pixel) => (axis.log ? 10 ** back(pixel) : back(pixel)), ticks };
}

function niceTicks(low, high, most) {
  const raw = (high - low) / Math.max(most, 2);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((one) => one * power >= raw) ?? 10);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) ticks.push([k * step, short(k * step)]);
  return ticks;
}

function drawAxes(group, panel, place, x, y) {
  let end = -Infinity;
  for (const [at, words] of x.ticks) {
    const px = x.at(at);
    if (panel.x.names) {
      svg("text", { class: "tick xtick", transform: `translate(${px + 3} ${place.height + 12}) rotate(-35)`, "text-anchor": "end" }, group, words);
      continue;
    }
    svg("line", { class: "grid", x1: px, x2: px, y1: 0, y2: place.height }, group);
    if (px - 3.6 * words.length < end) continue; // would touch the last one
    end = px + 3.6 * words.length + 4;
    svg("text", { class: "tick xtick", x: px, y: place.height + 16, "text-anchor": "middle" }, group, words);
  }
  for (const [at, words] of y.ticks) {
    const py = y.at(at);
    if (!panel.y.names) svg("line", { class: "grid", x1: 0, x2: place.width, y1: py, y2: py }, group);
    svg("text", { class: "tick ytick", x: -6, y: py + 4, "text-anchor": "end", ...(panel.y.names ? { "font-size": 9 } : {}) }, group, words);
  }
  svg("path", { class: "edge", d: `M0 0V${place.height}H${place.width}`, fill: "none" }, group);
  if (panel.title) svg("text", { class: "title", x: 0, y: -8 }, group, panel.title);
  if (panel.x.title) svg("text", { x: place.width / 2, y: place.height + 34, "text-anchor": "middle" }, group, panel.x.title);
  if (panel.y.title) svg("text", { transform: `translate(-44 ${place.height / 2}) rotate(-90)`, "text-anchor": "middle" }, group, panel.y.title);
}

const DRAWERS = {
  line(parent, one, x, y, place) {
    const points = one.x.map((v, k) => [x.at(v), y.at(one.y[k])]);
    let path = "";
    points.forEach(([px, py], k) => {
      if (!k) path = `M${px.toFixed(1)} ${py.toFixed(1)}`;
      else if (one.step) path += `H${px.toFixed(1)}V${py.toFixed(1)}`;
      else path += `L${px.toFixed(1)} ${py.toFixed(1)}`;
    });
    if (one.fill && points.length) svg("path", { d: `${path}V${place.height}H${points[0][0].toFixed(1)}Z`, fill: shade(one.colour), "fill-opacity": 0.18 }, parent);
    const line = svg("path", { class: "mark line", d: path, fill: "none", stroke: shade(one.colour), "stroke-width": 1.8, "stroke-dasharray": DASHES[one.dash ?? "solid"] }, parent);
    svg("title", {}, line, one.name);
  },
  points(parent, one, x, y, place, outside) {
    const [px, py] = [x.at(one.x[0]), y.at(one.y[0])];
    const path = `M${x.at(one.x[1])} ${py}H${x.at(one.x[2])}M${px} ${y.at(one.y[1])}V${y.at(one.y[2])}`;
    svg("path", { class: "whisker", d: path, stroke: shade(one.colour) }, parent);
    const mark = svg("path", { class: "point", d: SHAPES[one.marker], transform: `translate(${px} ${py})`, fill: shade(one.colour) }, parent);
    svg("title", {}, mark, one.words);
    const size = 7.2 * one.name.length;
    const at = Math.min(Math.max(px + one.label[0], size / 2), place.width - size / 2);
    if (one.far) svg("line", { x1: px, y1: py, x2: at, y2: py - one.label[1], stroke: shade(one.colour) }, parent);
    svg("text", { class: "name", x: at, y: py - one.label[1] + 4, "text-anchor": "middle" }, outside, one.name);
  },
  bars(parent, one, x, y, place) {
    one.x.forEach((at, k) => {
      const [px, wide] = [x.at(at), Math.min(0.7 * x.step, 60)];
      const top = y.at(one.y[k]);
      const bar = svg("rect", { class: "point", x: px - wide / 2, width: wide, y: Math.min(top, place.height), height: Math.max(place.height - top, 0), fill: shade(one.colours[k]) }, parent);
      svg("title", {}, bar, `${one.names[k]}: ${short(one.y[k])}`);
      if (one.high[k] > one.low[k]) svg("path", { class: "whisker edge", d: `M${px} ${y.at(one.low[k])}V${y.at(one.high[k])}` }, parent);
    });
  },
  spans(parent, one, x, y) {
    one.rows.forEach((row, k) => {
      const [a, b] = [x.at(one.from[k]), x.at(one.to[k])];
      const bar = svg("rect", { class: "point", x: a, width: Math.max(b - a, 0.5), y: y.at(row) - 0.45 * y.step, height: 0.9 * y.step, fill: shade(one.colour) }, parent);
      svg("title", {}, bar, `${one.name}, job ${one.jobs[k]}, hours ${short(one.from[k])} to ${short(one.to[k])}`);
    });
  },
};

function addZoom(group, place, x, state, element) {
  const pane = svg("rect", { class: "pane", width: place.width, height: place.height, fill: "none" }, group);
  const pixel = (event) => Math.min(Math.max(event.clientX - pane.getBoundingClientRect().left, 0), place.width);
  group.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse" || event.button) return; // on a phone, a finger scrolls the page
    const from = pixel(event);
    const marked = svg("rect", { class: "marked", y: 0, height: place.height }, group);
    const move = (next) => {
      marked.setAttribute("x", Math.min(from, pixel(next)));
      marked.setAttribute("width", Math.abs(pixel(next) - from));
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", (last) => {
      removeEventListener("pointermove", move);
      marked.remove();
      if (Math.abs(pixel(last) - from) < 8) return;
      state.range = [x.back(Math.min(from, pixel(last))), x.back(Math.max(from, pixel(last)))];
      redraw(element);
    }, { once: true });
  });
  group.addEventListener("dblclick", () => {
    state.range = null;
    redraw(element);
  });
}

function legend(element, chart) {
  const row = document.createElement("div");
  row.className = "legend";
  if (!chart.legend) return row;
  const { hidden } = chartState.get(element);
  const first = new Map(chart.series.map((one) => [one.name, one]).reverse());
  for (const name of new Set(chart.series.map((one) => one.name))) {
    const one = first.get(name);
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain key";
    button.setAttribute("aria-pressed", String(!hidden.has(name)));
    const sample = svg("svg", { width: 22, height: 10, "aria-hidden": "true" });
    if (one.kind === "spans") svg("rect", { width: 12, height: 10, x: 5, fill: shade(one.colour) }, sample);
    else svg("path", { d: "M0 5H22", stroke: shade(one.colour), "stroke-width": 2.5, "stroke-dasharray": DASHES[one.dash ?? "solid"] }, sample);
    button.append(sample, ` ${name}`);
    button.addEventListener("click", () => {
      hidden[hidden.has(name) ? "delete" : "add"](name);
      redraw(element);
      [...element.querySelectorAll(".key")].find((key) => key.textContent === ` ${name}`)?.focus();
    });
    row.append(button);
  }
  return row;
}

function tools(element, chart) {
  const row = document.createElement("div");
  row.className = "tools";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "plain";
  button.textContent = "SVG";
  button.setAttribute("aria-label", `Download ${chart.label} as SVG`);
  button.addEventListener("click", () => save(`${fileName(element.id || chart.label)}.svg`, "image/svg+xml", svgOf(element)));
  row.append(button);
  return row;
}

// A picture that needs nothing of this page: in the light theme, with its styles and on white.
function svgOf(element) {
  const copy = element.querySelector("svg.drawn").cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  for (const pane of copy.querySelectorAll(".pane")) pane.remove();
  copy.prepend(svg("style", {}, null, EXPORTED), svg("rect", { width: "100%", height: "100%", fill: "#fff" }));
  return new XMLSerializer().serializeToString(copy).replace(/var\(--s-[0-9a-f]{6}, (#[0-9A-Fa-f]{6})\)/g, "$1");
}
