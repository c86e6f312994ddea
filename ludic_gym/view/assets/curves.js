"use strict";

// Curves of the training runs, one chart per metric with a line per run; drawn by uPlot.

const LINES = 8; // colours in the style sheet
const drawn = new Set(); // the charts in the document
const foldedGroups = new Set();
let waitingCharts = null;

const lineColour = (i) => css(`--line-${i % LINES}`);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function drawCurves(box) {
  const runs = ofKind("train");
  const content = make("div");
  const redraw = () => drawMetrics(content, runs);
  const set = (name) => (value) => { change({ [name]: value }); redraw(); };
  let moving = 0;
  const smooth = make("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: state.smooth, oninput: () => {
    cancelAnimationFrame(moving);
    moving = requestAnimationFrame(() => set("smooth")(smooth.value));
  } });
  box.append(make("div", { class: "controls", role: "search" },
    searchField("find metrics", "find", state.metric, set("metric")),
    make("label", {}, make("span", {}, "smoothing"), smooth),
    checkbox("log scale", state.log === "1", (on) => set("log")(on ? "1" : ""))),
  runs.length > 1 ? runChoice(runs, redraw) : null ?? "", content);
  redraw();
}

/** The runs with their colours; those that are not checked are hidden. */
function runChoice(runs, redraw) {
  return make("div", { class: "runs", role: "group", "aria-label": "runs" }, ...runs.map((run, i) => {
    const box = checkbox(visible(run.name), !hiddenRuns().includes(run.name), (on) => {
      const others = hiddenRuns().filter((name) => name !== run.name);
      change({ hide: (on ? others : [...others, run.name]).join("|") });
      redraw();
    });
    const mark = make("span", { class: "swatch" });
    mark.style.background = `var(--line-${i % LINES})`;
    box.prepend(mark);
    return box;
  }));
}

const hiddenRuns = () => state.hide.split("|");

function drawMetrics(content, runs) {
  clearCharts();
  waitingCharts = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      waitingCharts.unobserve(entry.target);
      entry.target.draw();
    }
  }, { rootMargin: "300px" });
  const metrics = metricsOf(runs).filter((m) => m.name.toLowerCase().includes(state.metric.toLowerCase()));
  const moving = metrics.filter((m) => !isConstant(m));
  const groups = new Map();
  for (const metric of moving) groups.set(groupOf(metric.name), [...(groups.get(groupOf(metric.name)) || []), metric]);
  const place = (group) => (["eval", "training"].indexOf(group) + 3) % 3;
  const parts = [...groups].sort((a, b) => place(a[0]) - place(b[0])).map(([group, list]) =>
    make("details", { open: !foldedGroups.has(group), ontoggle: (event) => {
      foldedGroups[event.target.open ? "delete" : "add"](group);
    } }, make("summary", {}, make("h2", {}, `${group} (${list.length})`)),
      make("div", { class: "charts" }, ...list.map((metric) => figure(metric, runs)))));
  const constant = metrics.filter(isConstant);
  if (constant.length) parts.push(constants(constant, runs));
  if (!parts.length) parts.push(make("p", { class: "quiet" }, "no metric has these words in its name"));
  content.replaceChildren(...parts);
}

function clearCharts() {
  for (const chart of drawn) chart.destroy();
  drawn.clear();
  if (waitingCharts) waitingCharts.disconnect();
}

/** The last update of a run that imitated demonstrations, 0 without any. */
function imitatedUntil(run) {
  const marks = run.curves.find((curve) => curve.name === "imitation");
  return marks ? Math.max(0, ...marks.updates.filter((_, i) => marks.values[i] === 1)) : 0;
}

const groupOf = (name) => (name.includes("/") ? name.split("/")[0] : "training");

/** Every metric of the shown runs: its curve by run, and the bounds of its interval if it has some. */
function metricsOf(runs) {
  const shown = runs.map((run, i) => ({ run, i })).filter(({ run }) => !hiddenRuns().includes(run.name));
  const metrics = new Map();
  for (const { run, i } of shown) {
    const named = new Map(run.curves.map((curve) => [curve.name, curve]));
    for (const curve of run.curves) {
      if (curve.name === "imitation") continue; // shaded in all charts
      const whose = curve.name.replace(/_(low|high)$/, "");
      if (whose !== curve.name && named.has(`${whose}_low`) && named.has(`${whose}_high`) && named.has(whose)) continue;
      if (!metrics.has(curve.name)) metrics.set(curve.name, { name: curve.name, lines: [] });
      metrics.get(curve.name).lines.push({ i, curve, low: named.get(`${curve.name}_low`), high: named.get(`${curve.name}_high`) });
    }
  }
  return [...metrics.values()];
}

/** True for one value in all runs. */
function isConstant(metric) {
  const values = metric.lines.flatMap(({ curve }) => curve.values).filter(known);
  return values.every((value) => value === values[0]);
}

function constants(metrics, runs) {
  const columns = [
    { id: "metric", head: "metric", text: true, always: true, value: (metric) => metric.name },
    { id: "value", head: "value", always: true, value: (metric) => metric.lines[0].curve.values.find(known) ?? null,
      cell: (metric) => short(metric.lines[0].curve.values.find(known)) },
    { id: "runs", head: "runs", text: true, value: (metric) => (runs.length > 1 ? metric.lines.map(({ i }) => runs[i].name).join(", ") : null) },
  ];
  return make("details", {}, make("summary", {}, make("h2", {}, `constant (${metrics.length})`)),
    sortableTable({ label: "constant metrics", columns, rows: metrics, sorted: "", onsort: () => {} }));
}

/** The frame of a chart, which is drawn when it scrolls into view. */
function figure(metric, runs) {
  const last = metric.lines.map(({ curve }) => short(curve.values.findLast(known))).join(", ");
  const place = make("div", { class: "plot" });
  const larger = make("button", { type: "button", "aria-label": `larger chart of ${metric.name}`, onclick: () => {
    box.classList.toggle("large");
    larger.textContent = box.classList.contains("large") ? "smaller" : "larger";
    resizeCharts();
  } }, "larger");
  const box = make("figure", {}, make("figcaption", {}, make("span", {}, visible(metric.name)),
    make("output", {}, metric.lines.length > 4 ? "" : last), larger), place);
  place.draw = () => drawn.add(chart(place, metric, runs));
  waitingCharts.observe(place);
  return box;
}

/** The exponential average of the values, without the bias to a first value of 0. */
function smoothed(values, weight) {
  let [sum, total] = [0, 0];
  return values.map((value) => {
    if (!known(value)) return null;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

function chart(place, metric, runs) {
  const log = state.log === "1";
  const weight = Number(state.smooth);
  const drawable = (values) => values.map((v) => (log && !(v > 0) ? null : v));
  const tables = [];
  const series = [{ label: "update" }];
  const bands = [];
  for (const { i, curve, low, high } of metric.lines) {
    const line = { label: visible(runs[i].name), stroke: () => lineColour(i), width: 1.5, spanGaps: true,
      points: { show: curve.values.length < 30, size: 5 }, value: (_, v) => short(v) };
    const bound = { stroke: "transparent", spanGaps: true, points: { show: false }, class: "bound" };
    if (low && high) {
      bands.push({ series: [series.length + 1, series.length], fill: () => `${lineColour(i)}22` });
      series.push(bound, bound);
      tables.push([low.updates, drawable(low.values)], [high.updates, drawable(high.values)]);
    }
    // The values themselves stay in sight behind their average.
    if (weight) {
      series.push({ ...bound, stroke: () => `${lineColour(i)}44`, width: 1 });
      tables.push([curve.updates, drawable(curve.values)]);
    }
    series.push(line);
    tables.push([curve.updates, drawable(weight ? smoothed(curve.values, weight) : curve.values)]);
  }
  const imitated = Math.max(...metric.lines.map(({ i }) => imitatedUntil(runs[i])));
  const shade = ({ ctx, bbox, valToPos }) => {
    if (!imitated) return;
    ctx.save();
    const end = Math.min(valToPos(imitated, "x", true), bbox.left + bbox.width);
    ctx.fillStyle = `${css("--line")}55`;
    ctx.fillRect(bbox.left, bbox.top, end - bbox.left, bbox.height);
    ctx.fillStyle = css("--quiet");
    ctx.font = `${11 * devicePixelRatio}px system-ui`;
    ctx.textBaseline = "top";
    ctx.fillText("imitation", bbox.left + 4, bbox.top + 4);
    ctx.restore();
  };
  const axis = { stroke: () => css("--quiet"), grid: { stroke: () => css("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const made = new uPlot({
    ...sizeOf(place), series, bands,
    scales: { x: { time: false }, y: { distr: log ? 3 : 1 } },
    axes: [{ ...axis, label: "update", labelSize: 14, labelFont: "11px system-ui", size: 24 }, { ...axis, size: 54, values: (_, ticks) => ticks.map((v) => (known(v) ? short(v) : "")) }],
    hooks: { drawClear: [shade] },
    cursor: { sync: { key: "update" }, points: { size: 6 } },
  }, uPlot.join(tables), place);
  const canvas = place.querySelector("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${metric.name} over updates: ${metric.lines.map(({ i, curve }) =>
    `${runs[i].name} ends at ${short(curve.values.findLast(known))}`).join(", ")}${imitated ? `; imitation until update ${imitated}` : ""}`);
  return made;
}

const sizeOf = (place) => ({ width: Math.floor(place.clientWidth), height: place.closest(".large") ? 380 : 180 });

function resizeCharts() {
  for (const one of drawn) one.setSize(sizeOf(one.root.parentElement));
}

/** Colours of another theme. */
function recolourCharts() {
  for (const one of drawn) one.redraw(false, false);
}
