"use strict";

// All text from runs goes through textContent, never through markup.

const ROW = 30; // px, as in the style sheet
const LONG = 20000; // characters of a text that are shown before a click shows the rest
const $ = (id) => document.getElementById(id);

let view = JSON.parse($("data").textContent);
let fetched = null; // chunks by name, once they come from a server
const parsed = new Map();
const state = { shown: [], chosen: -1, env: "", outcome: "", differ: false, text: "" };

/** An element: attributes, then children, which are elements or text. */
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "rect", "line", "path", "text", "circle", "title"].includes(tag);
  const element = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Control characters made visible, so that escape sequences and bells do nothing. */
function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029]/g, (c) => {
    const code = c.charCodeAt(0);
    return code < 32 ? String.fromCharCode(0x2400 + code) : "\ufffd";
  });
}

const percent = (x) => (x === null || x === undefined ? "-" : `${(100 * x).toFixed(1)}%`);
const fixed = (x, digits = 2) => (x === null || x === undefined ? "-" : x.toFixed(digits));
const short = (x) =>
  x === null ? "-" : Math.abs(x) >= 1e5 || (x && Math.abs(x) < 1e-3) ? x.toExponential(2)
    : String(+x.toPrecision(4));

// ---- episodes

function chunkText(run, i) {
  const name = `chunk-${run}-${i}`;
  return fetched ? fetched[name] : JSON.parse($(name).textContent);
}

/** The transcript of a run's row, or null where only its score was kept. */
function transcript(run, row) {
  const i = view.runs[run].chunks.findIndex((c) => c.start <= row && row < c.start + c.count);
  if (i < 0) return null;
  const name = `${run}-${i}`;
  if (!parsed.has(name)) {
    if (parsed.size >= 8) parsed.delete(parsed.keys().next().value);
    parsed.set(name, chunkText(run, i));
  }
  return JSON.parse(parsed.get(name)[row - view.runs[run].chunks[i].start]);
}

/** Every task of the first run, with its row in each run; -1 where a run lacks it. */
function pairedRows() {
  const key = (run, i) => {
    const c = run.columns;
    return JSON.stringify([run.envs[c.env[i]].id, c.task[i], c.nth[i], view.kind === "train" ? i : 0]);
  };
  const rows = new Map();
  view.runs.forEach((run, r) => {
    for (let i = 0; i < run.columns.env.length; i++) {
      const k = key(run, i);
      if (!rows.has(k)) rows.set(k, view.runs.map(() => -1));
      rows.get(k)[r] = i;
    }
  });
  return [...rows.values()];
}

let rows = pairedRows();
const first = (row) => row.findIndex((i) => i >= 0);
const column = (row, r, name) => view.runs[r].columns[name][row[r]];
const envOf = (row) => view.runs[first(row)].envs[column(row, first(row), "env")].id;

function verdict(row, r) {
  if (row[r] < 0) return { word: "not played", tone: "quiet" };
  if (column(row, r, "error")) return { word: "error", tone: "warn" };
  const good = column(row, r, "success");
  return { word: column(row, r, "outcome"), tone: good ? "good" : "bad" };
}

function matches(row) {
  if (state.env && envOf(row) !== state.env) return false;
  if (state.differ && row.every((_, r) => verdict(row, r).tone === verdict(row, 0).tone)) return false;
  if (!state.outcome) return true;
  return row.some((_, r) => {
    const { word, tone } = verdict(row, r);
    return state.outcome === `tone:${tone}` || state.outcome === word;
  });
}

/** Whether the row's transcripts hold the text, whatever its case. */
function holds(row, needle) {
  return row.some((i, r) => {
    const episode = i < 0 ? null : transcript(r, i);
    if (episode === null) return false;
    const texts = [episode.error || ""];
    for (const rollout of episode.rollouts) {
      texts.push(rollout.final);
      for (const step of rollout.steps) {
        texts.push(step.observation, step.action || "", step.feedback);
        texts.push(...step.completions.map((c) => c.text), JSON.stringify(step.info));
      }
    }
    return texts.some((text) => text.toLowerCase().includes(needle));
  });
}

let searching = 0;
/** Show the rows that match; transcripts are searched in slices, so that typing stays fluid. */
async function refilter() {
  const mine = ++searching;
  const candidates = rows.filter(matches);
  const needle = state.text.toLowerCase();
  if (!needle) return show(candidates);
  const found = [];
  for (let i = 0; i < candidates.length; i++) {
    if (holds(candidates[i], needle)) found.push(candidates[i]);
    if (i % 200 === 199) {
      show(found.slice(), `searching, ${i + 1} of ${candidates.length}`);
      await new Promise((resolve) => setTimeout(resolve));
      if (mine !== searching) return;
    }
  }
  show(found);
}

function show(found, note = "") {
  state.shown = found;
  state.chosen = Math.min(state.chosen, found.length - 1);
  $("spacer").style.height = `${found.length * ROW}px`;
  $("count").textContent = note || `${found.length} of ${rows.length}`;
  drawRows();
}

/** Only the rows in sight are in the document, so that their number does not matter. */
function drawRows() {
  const box = $("rows");
  const from = Math.max(0, Math.floor(box.scrollTop / ROW) - 5);
  const to = Math.min(state.shown.length, from + Math.ceil(box.clientHeight / ROW) + 10);
  const drawn = [];
  for (let i = from; i < to; i++) drawn.push(drawnRow(i));
  $("spacer").replaceChildren(...drawn);
  const seen = state.chosen >= from && state.chosen < to;
  if (seen) box.setAttribute("aria-activedescendant", `row-${state.chosen}`);
  else box.removeAttribute("aria-activedescendant");
}

function drawnRow(i) {
  const row = state.shown[i];
  const r = first(row);
  const name = view.runs[r].envs.length > 1 ? envOf(row).replace(/^ludic\//, "") : "";
  const nth = column(row, r, "nth");
  const label = view.kind === "train" ? `update ${nth}` : nth ? `${column(row, r, "index")} #${nth + 1}`
    : `${column(row, r, "index")}`;
  const element = make("div", {
    class: "row", role: "option", id: `row-${i}`, "aria-selected": String(i === state.chosen),
    "aria-setsize": state.shown.length, "aria-posinset": i + 1,
  }, make("span", { class: "name" }, `${label} ${name}`));
  row.forEach((_, k) => {
    const { word, tone } = verdict(row, k);
    element.append(make("span", { class: tone }, word));
    if (row[k] >= 0) element.append(make("span", { class: "quiet" }, fixed(column(row, k, "reward"))));
  });
  element.style.top = `${i * ROW}px`;
  element.addEventListener("click", () => choose(i));
  return element;
}

function choose(i) {
  if (i < 0 || i >= state.shown.length) return;
  state.chosen = i;
  const box = $("rows");
  if (i * ROW < box.scrollTop) box.scrollTop = i * ROW;
  if ((i + 1) * ROW > box.scrollTop + box.clientHeight) box.scrollTop = (i + 1) * ROW - box.clientHeight;
  drawRows();
  drawEpisode(state.shown[i]);
}

// ---- one episode

function drawEpisode(row) {
  const sides = row.map((i, r) => (i < 0 ? null : side(r, i))).filter(Boolean);
  $("episode").replaceChildren(make("div", { class: "sides" }, ...sides));
  $("episode").scrollTop = 0;
}

function side(r, i) {
  const run = view.runs[r];
  const episode = transcript(r, i);
  const head = make("h2", {}, view.runs.length > 1 ? `${run.name}: ` : "",
    `${run.envs[run.columns.env[i]].id}, episode ${run.columns.index[i]}`);
  const box = make("div", {}, head);
  if (episode === null) {
    box.append(make("p", { class: "quiet" }, "The page was made without this transcript; see ludic view --most."));
    return box;
  }
  const kwargs = Object.keys(episode.kwargs).length ? ` ${JSON.stringify(episode.kwargs)}` : "";
  box.append(make("p", { class: "quiet" }, visible(`seed ${episode.seed}${kwargs}`)));
  if (episode.error) box.append(make("p", { class: "warn" }, visible(`failed: ${episode.error}`)));
  for (const rollout of episode.rollouts) box.append(...rolloutParts(rollout, episode.rollouts.length));
  return box;
}

function rolloutParts(rollout, count) {
  const parts = [];
  if (count > 1) parts.push(make("h2", {}, visible(`${rollout.agent} ${rollout.player}`)));
  rollout.steps.forEach((step, t) => parts.push(turn(step, t)));
  if (rollout.final) parts.push(make("p", { class: "label" }, "last observation"), text(rollout.final));
  parts.push(make("p", {}, `total reward ${short(rollout.reward)}`));
  return parts;
}

function turn(step, t) {
  const failed = step.action === null;
  const tone = step.reward > 0 ? "good" : step.reward < 0 ? "bad" : "quiet";
  const head = make("h3", {}, `turn ${t + 1}`, make("span", { class: tone }, `reward ${short(step.reward)}`),
    failed ? make("span", { class: "warn" }, "not parsed") : null,
    step.ended ? make("span", { class: "quiet" }, step.ended) : null);
  const parts = [head];
  if (step.observation) parts.push(make("p", { class: "label" }, "observation"), text(step.observation));
  for (const completion of step.completions) parts.push(...completionParts(completion));
  const last = step.completions.at(-1);
  if (!failed && !(last && last.text === step.action)) {
    parts.push(make("p", { class: "label" }, "action"), text(step.action, "action"));
  }
  if (failed && step.feedback) parts.push(make("p", { class: "label warn" }, "feedback"), text(step.feedback));
  const info = Object.entries(step.info);
  if (info.length) {
    const lines = info.map(([key, value]) => `${key}: ${value}`).join("\n");
    parts.push(make("details", {}, make("summary", { class: "label" }, "info"), text(lines)));
  }
  return make("div", { class: "turn" }, ...parts);
}

function completionParts(completion) {
  const facts = [completion.tokens ? `${completion.tokens.length} tokens` : "", completion.finish === "length"
    ? "cut off by max_tokens" : "", completion.version === null ? "" : `version ${completion.version}`];
  const parts = [make("p", { class: "label" }, ["reply", ...facts.filter(Boolean)].join(", "))];
  if (completion.prompt) {
    parts.unshift(make("details", {}, make("summary", { class: "label" }, "prompt"), text(completion.prompt)));
  }
  if (completion.decoded && completion.tokens) parts.push(tokens(completion));
  else {
    parts.push(text(completion.text));
    if (completion.tokens) {
      parts.push(make("details", {}, make("summary", { class: "label" }, "token ids by log-prob"), tokens(completion)));
    }
  }
  for (const call of completion.tools) {
    parts.push(make("p", { class: "label" }, visible(`calls ${call.name}`)), text(call.arguments, "action"));
  }
  return parts;
}

/** The tokens, the redder the less likely they were. */
function tokens(completion) {
  const box = make("pre", { dir: "auto" });
  completion.tokens.slice(0, LONG).forEach((token, i) => {
    const logprob = completion.logprobs[i];
    const span = make("span", { class: "token", title: `log-prob ${logprob}, p ${percent(Math.exp(logprob))}` },
      visible(token));
    span.style.setProperty("--surprise", String(1 - Math.exp(logprob)));
    box.append(span);
  });
  return box;
}

/** A text as it is; of a long one the beginning, and a button for the rest. */
function text(words, kind = "") {
  const box = make("pre", { class: kind, dir: "auto" }, visible(words.slice(0, LONG)));
  if (words.length <= LONG) return box;
  const more = make("button", { class: "more", type: "button" },
    `show all ${words.length.toLocaleString("en")} characters`);
  more.addEventListener("click", () => {
    box.textContent = visible(words);
    more.remove();
  });
  return make("div", {}, box, more);
}

// ---- results

function drawSummary() {
  $("title").textContent = view.title;
  $("about").textContent = view.runs.map(aboutLine).join(" | ");
  const measured = view.kind === "bench";
  $("summary").replaceChildren(...(measured ? view.runs.flatMap(results) : []));
}

function aboutLine(run) {
  const flat = Object.entries(run.about).filter(([, value]) => value !== null && typeof value !== "object");
  return flat.map(([key, value]) => `${key} ${value}`).join(", ");
}

function results(run) {
  const heads = ["env", "successes", "rate", "95%", "", "random", "reward", "95%", "turns", "errors"];
  const most = Math.max(1, ...run.envs.map((env) => env.pass_at_k.length));
  if (most > 1) heads.push(`pass@${most}`, `pass^${most}`);
  const lines = run.envs.map((env) => make("tr", {},
    make("td", {}, env.id, Object.keys(env.kwargs).length ? ` ${JSON.stringify(env.kwargs)}` : ""),
    ...[
      `${env.successes}/${env.episodes}`, percent(env.success_rate), interval(env.success_interval, percent),
      rateBar(env), percent(env.random), fixed(env.mean_reward), interval(env.reward_interval, fixed),
      env.episodes ? fixed(env.turns / env.episodes, 1) : "-", String(env.errors.length),
      ...(most > 1 ? [percent(env.pass_at_k.at(-1)), percent(env.pass_hat_k.at(-1))] : []),
    ].map((cell) => make("td", {}, cell))));
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((h) =>
    make("th", { scope: "col" }, h || make("span", {}, "0 to 100%"))))), make("tbody", {}, ...lines));
  const parts = [make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `results of ${run.name}` }, table)];
  if (view.runs.length > 1) parts.unshift(make("h2", {}, run.name));
  return parts;
}

const interval = (pair, words) => (pair ? `${words(pair[0])} to ${words(pair[1])}` : "-");

/** The rate as a bar, its interval as a whisker, random play as a dashed mark. */
function rateBar(env) {
  const x = (share) => (4 + 152 * share).toFixed(1);
  const [low, high] = env.success_interval;
  return make("svg", { width: 160, height: 16, role: "img", "aria-label": `${percent(env.success_rate)}` },
    make("line", { class: "axis", x1: x(0), x2: x(1), y1: 15, y2: 15 }),
    make("rect", { class: "mark", x: x(0), y: 4, width: Math.max(0, x(env.success_rate || 0) - x(0)), height: 8, opacity: .55 }),
    make("line", { class: "whisker", x1: x(low), x2: x(high), y1: 8, y2: 8 }),
    env.random === null || env.random === undefined ? null
      : make("line", { class: "chance", x1: x(env.random), x2: x(env.random), y1: 1, y2: 15 }));
}

/** How often which value came: one chart of rewards and one of turns. */
function histograms() {
  return [["reward", "rewards"], ["turns", "turns"]].map(([name, title]) => {
    const values = view.runs.map((run, r) => state.shown.filter((row) => row[r] >= 0 && !column(row, r, "error"))
      .map((row) => column(row, r, name)));
    return histogram(title, values);
  });
}

function histogram(title, series) {
  const all = series.flat();
  if (!all.length) return null;
  let low = Infinity;
  let high = -Infinity;
  for (const v of all) { low = Math.min(low, v); high = Math.max(high, v); }
  const bins = high > low ? 24 : 1;
  const counts = series.map((values) => {
    const bin = new Array(bins).fill(0);
    for (const v of values) bin[Math.min(bins - 1, Math.floor(((v - low) / (high - low || 1)) * bins))]++;
    return bin;
  });
  const top = Math.max(...counts.flat());
  const width = 240 / bins / series.length;
  const bars = counts.flatMap((bin, s) => bin.map((n, i) => make("rect", {
    class: s ? "second" : "mark", x: i * (240 / bins) + s * width, y: 100 - (96 * n) / top, width: Math.max(1, width - 1),
    height: (96 * n) / top,
  })));
  return make("figure", {}, make("figcaption", {}, title, make("output", {}, `most ${top}`)),
    make("svg", { viewBox: "0 0 240 116", role: "img", "aria-label": `histogram of ${title}` }, ...bars,
      make("line", { class: "axis", x1: 0, x2: 240, y1: 100, y2: 100 }),
      make("text", { x: 0, y: 113 }, short(low)), make("text", { x: 240, y: 113, "text-anchor": "end" }, short(high))));
}

function drawCurves() {
  const groups = new Map();
  for (const curve of view.curves) {
    const group = curve.name.includes("/") ? curve.name.split("/")[0] : "training";
    groups.set(group, [...(groups.get(group) || []), curve]);
  }
  const parts = [];
  const known = ["eval", "training"];
  const place = (group) => (known.includes(group) ? known.indexOf(group) : known.length);
  for (const [group, curves] of [...groups].sort((a, b) => place(a[0]) - place(b[0]))) {
    parts.push(make("h2", {}, group), make("div", { class: "charts" }, ...curves.map(chart)));
  }
  if (view.kind === "bench") {
    const drawn = histograms().filter(Boolean);
    if (drawn.length) parts.push(make("h2", {}, "of the episodes listed below"), make("div", { class: "charts" }, ...drawn));
  }
  $("curves").replaceChildren(...parts);
}

/** One metric over the updates; the pointer reads values off. */
function chart(curve) {
  const points = curve.points.filter(([, v]) => v !== null);
  const output = make("output", {}, points.length ? short(points.at(-1)[1]) : "-");
  const figure = make("figure", {}, make("figcaption", {}, curve.name, output));
  if (!points.length) return figure;
  let low = Infinity;
  let high = -Infinity;
  for (const [, v] of points) { low = Math.min(low, v); high = Math.max(high, v); }
  const [start, end] = [points[0][0], points.at(-1)[0]];
  const x = (u) => (end > start ? (240 * (u - start)) / (end - start) : 120);
  const y = (v) => (high > low ? 96 - (92 * (v - low)) / (high - low) : 50);
  const path = points.map(([u, v], i) => `${i ? "L" : "M"}${x(u).toFixed(1)} ${y(v).toFixed(1)}`).join("");
  const dot = make("circle", { class: "mark", r: 3, cx: x(end), cy: y(points.at(-1)[1]) });
  const svg = make("svg", { viewBox: "0 0 240 116", role: "img", "aria-label": `${curve.name}, last ${short(points.at(-1)[1])}` },
    make("line", { class: "axis", x1: 0, x2: 240, y1: 100, y2: 100 }), make("path", { class: "line", d: path }), dot,
    make("text", { x: 0, y: 113 }, `${short(low)} to ${short(high)}`),
    make("text", { x: 240, y: 113, "text-anchor": "end" }, `update ${end}`));
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const u = start + ((event.clientX - box.left) / box.width) * (end - start);
    const near = points.reduce((a, b) => (Math.abs(b[0] - u) < Math.abs(a[0] - u) ? b : a));
    dot.setAttribute("cx", x(near[0]));
    dot.setAttribute("cy", y(near[1]));
    output.textContent = `${short(near[1])} at ${near[0]}`;
  });
  svg.addEventListener("pointerleave", () => { output.textContent = short(points.at(-1)[1]); });
  figure.append(svg);
  return figure;
}

// ---- controls

function drawFilters() {
  const envs = [...new Set(rows.map(envOf))];
  const words = [...new Set(rows.flatMap((row) => row.map((_, r) => verdict(row, r).word)))].sort();
  const env = select("environment", [["", "all environments"], ...envs.map((id) => [id, id])], "env");
  const outcome = select("outcome", [["", "any outcome"], ["tone:good", "successes"], ["tone:bad", "no successes"],
    ["tone:warn", "errors"], ...words.map((word) => [word, `outcome: ${word}`])], "outcome");
  const search = make("input", { type: "search", id: "search", "aria-label": "search transcripts", placeholder: "search transcripts" });
  let waiting = 0;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { state.text = search.value; changed(); }, 150);
  });
  const parts = [envs.length > 1 ? env : null, outcome, search, make("span", { id: "count", class: "quiet", role: "status" })];
  if (view.runs.length > 1) {
    const box = make("input", { type: "checkbox", id: "differ" });
    box.addEventListener("change", () => { state.differ = box.checked; changed(); });
    parts.push(make("label", {}, box, " only where the runs differ"));
  }
  $("filters").replaceChildren(...parts.filter(Boolean));
}

function select(label, options, name) {
  const element = make("select", { "aria-label": label }, ...options.map(([value, words]) => make("option", { value }, words)));
  element.value = state[name];
  element.addEventListener("change", () => { state[name] = element.value; changed(); });
  return element;
}

async function changed() {
  await refilter();
  if (view.kind === "bench") drawCurves();
  if (state.chosen >= 0) drawEpisode(state.shown[state.chosen]);
}

function nextWhere(test) {
  for (let k = 1; k <= state.shown.length; k++) {
    const i = (state.chosen + k) % state.shown.length;
    if (test(state.shown[i])) return choose(i);
  }
}

const KEYS = {
  j: ["next episode", () => choose(state.chosen + 1)],
  k: ["episode before", () => choose(Math.max(0, state.chosen - 1))],
  n: ["next that is no success", () => nextWhere((row) => row.some((_, r) => verdict(row, r).tone !== "good"))],
  d: ["next where the runs differ", () => nextWhere((row) => row.some((_, r) => verdict(row, r).tone !== verdict(row, 0).tone))],
  "/": ["search", () => $("search").focus()],
  t: ["light or dark", toggleTheme],
  "?": ["these keys", () => $("keys").showModal()],
};
const ARROWS = { ArrowDown: "j", ArrowUp: "k" };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") $("rows").focus();
    return;
  }
  const arrow = event.target === $("rows") ? ARROWS[event.key] : undefined;
  const known = KEYS[arrow || event.key];
  if (!known) return;
  event.preventDefault();
  known[1]();
});

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

function drawKeys() {
  const lines = Object.entries(KEYS).map(([key, [words]]) => make("p", {}, make("kbd", {}, key), ` ${words}`));
  const close = make("button", { type: "button" }, "close");
  close.addEventListener("click", () => $("keys").close());
  $("keys").replaceChildren(...lines, close);
}

// ---- updates during a training run

async function refresh() {
  const answer = await fetch("data.json", { cache: "no-cache" }).catch(() => null);
  if (answer && answer.ok) {
    const news = await answer.json();
    if (news.version !== view.version) {
      view = news.view;
      view.version = news.version;
      fetched = news.chunks;
      parsed.clear();
      rows = pairedRows();
      draw();
    }
  }
  setTimeout(refresh, 2000);
}

function draw() {
  drawSummary();
  $("browser").hidden = !rows.length;
  drawFilters();
  refilter();
  drawCurves();
}

$("theme").addEventListener("click", toggleTheme);
$("help").addEventListener("click", () => $("keys").showModal());
$("rows").addEventListener("scroll", drawRows);
$("filters").addEventListener("submit", (event) => event.preventDefault());
addEventListener("resize", drawRows);
drawKeys();
draw();
if (rows.length) choose(0);
if (view.live) refresh();
