"use strict";

// Results of the benchmarks: runs x environments, and every number of each.

const SIGNIFICANT = 0.05;

function drawResults(box) {
  const benches = ofKind("bench");
  const content = make("div");
  const redraw = () => {
    content.replaceChildren(...(benches.length > 1 ? [matrixHead(), matrix(benches)] : []),
      make("h2", {}, "All numbers"), details(benches), ...footnotes(benches));
  };
  const field = searchField("find environments and runs", "find", state.find, (text) => {
    change({ find: text });
    redraw();
  });
  const controls = make("div", { class: "controls", role: "search" }, field);
  if (benches.length > 1) {
    controls.append(
      choice("measure", [["success", "success"], ["reward", "reward"]], state.measure, (value) => {
        change({ measure: value });
        redraw();
      }),
      choice("differences from", baselines(benches).map((name) => [name, name]), baseline(benches), (value) => {
        change({ base: value });
        redraw();
      }));
  }
  box.append(controls, content);
  redraw();
}

/** Notes of results, such as that the rows are a sample, and why runs are not compared; each once. */
function footnotes(benches) {
  const notes = new Set(benches.flatMap((run) => run.envs.map((env) => env.note).filter(Boolean)));
  const refused = view.differences.filter((d) => d.refused && d.measure === state.measure)
    .map((d) => `${visible(shortEnv(d.env))}: ${visible(d.refused)}`);
  return [...notes, ...new Set(refused)].map((note) => make("p", { class: "quiet" }, note));
}

/** Runs with differences from all others: of many runs only the first has them. */
function baselines(benches) {
  const first = view.runs.indexOf(benches[0]);
  const all = view.differences.every((d) => d.first === first);
  return (all && benches.length > 2 ? [benches[0]] : benches).map((run) => run.name);
}

const baseline = (benches) => (baselines(benches).includes(state.base) ? state.base : benches[0].name);

/** The paired difference of a run from the baseline in an env, or null. */
function difference(base, run, envId) {
  const [b, r] = [view.runs.indexOf(base), view.runs.indexOf(run)];
  const found = view.differences.find((d) => d.env === envId && d.measure === state.measure
    && ((d.first === b && d.second === r) || (d.first === r && d.second === b)));
  if (!found || found.first === b) return found || null;
  const turned = found.interval && [-found.interval[1], -found.interval[0]];
  return { ...found, difference: -found.difference, interval: turned };
}

const measured = (env) => (state.measure === "success" ? env.success_rate : env.mean_reward);
const inWords = (x) => (state.measure === "success" ? percent(x) : fixed(x));
const finds = (...words) => words.join(" ").toLowerCase().includes(state.find.toLowerCase());

function matrixHead() {
  return make("div", {}, make("h2", {}, "Runs by environment"),
    make("p", { class: "quiet" }, `Mean ${state.measure} with its 95% interval; below it, the paired difference on common tasks,`
      + " its 95% interval, and the p-value of a sign-flip test, not corrected for the number of comparisons."));
}

function matrix(benches) {
  const base = benches.find((run) => run.name === baseline(benches));
  const ids = [...new Set(benches.flatMap((run) => run.envs.map((env) => env.id)))];
  // Words that name a run choose columns, any others rows.
  const named = state.find ? benches.filter((run) => finds(run.name, run.model)) : [];
  const shown = named.length ? benches.filter((run) => run === base || named.includes(run)) : benches;
  const envIn = (run, id) => run.envs.find((env) => env.id === id && env.episodes);
  const isSample = (id) => shown.some((run) => envIn(run, id)?.note);
  const rows = ids.filter((id) => named.length || finds(id)).map((id) => ({ id }));
  const common = rows.filter((row) => shown.every((run) => envIn(run, row.id) && known(measured(envIn(run, row.id)))));
  const mean = (run) => common.reduce((sum, row) => sum + measured(envIn(run, row.id)), 0) / common.length;
  const columns = [
    { id: "env", head: "environment", text: true, always: true, value: (row) => row.id,
      cell: (row) => (row.mean ? `mean of ${common.length}` : `${visible(shortEnv(row.id))}${isSample(row.id) ? " (sample)" : ""}`) },
    ...shown.map((run) => ({
      id: `run:${run.name}`, head: run.name, always: true,
      value: (row) => { const env = envIn(run, row.id); return env ? measured(env) : null; },
      cell: (row) => (row.mean ? make("strong", {}, inWords(mean(run))) : resultCell(run, base, envIn(run, row.id))),
    })),
  ];
  return sortableTable({ label: "runs by environment", columns, rows, sorted: state.sort,
    foot: common.length > 1 ? [{ mean: true }] : [], onsort: (sort) => change({ sort }) });
}

function resultCell(run, base, env) {
  if (!env) return make("span", { class: "quiet" }, "not played");
  const range = state.measure === "success" ? rateInterval(env) : env.reward_interval;
  const parts = [make("div", {}, make("a", { href: address({ tab: "episodes", env: env.id, left: run.name, episode: "",
    right: run === base ? "" : base.name, outcome: "" }) }, inWords(measured(env))),
  make("span", { class: "quiet" }, ` ${interval(range)}`))];
  if (state.measure === "success" && known(env.success_rate)) parts.push(rateBar(env));
  if (run !== base) parts.push(differenceLine(difference(base, run, env.id)));
  return make("div", { class: "result" }, ...parts);
}

/** Of an environment without success there is none. */
const rateInterval = (env) => (known(env.success_rate) ? env.success_interval : null);

function differenceLine(found) {
  if (!found) return make("div", { class: "quiet" }, "not compared");
  if (found.refused) return make("div", { class: "warn", title: visible(found.refused) }, "not compared");
  const scale = state.measure === "success" ? 100 : 1;
  const digits = state.measure === "success" ? 1 : 2;
  const tone = found.p >= SIGNIFICANT ? "quiet" : found.difference > 0 ? "good" : "bad";
  const range = found.interval ? ` [${found.interval.map((x) => signed(scale * x, digits)).join(", ")}]` : "";
  const p = found.p < 0.001 ? "p < 0.001" : `p ${found.p.toPrecision(2)}`;
  return make("div", { class: tone, title: `on ${found.tasks} common tasks` },
    `${signed(scale * found.difference, digits)}${scale > 1 ? " points" : ""}${range} ${p}`);
}

const interval = (pair) => (pair ? `[${pair.map((x) => inWords(x).replace("%", "")).join(", ")}]` : "");

function details(benches) {
  const rows = benches.flatMap((run) => run.envs.map((env) => ({ run, env })))
    .filter(({ run, env }) => finds(run.name, run.model, env.id));
  const per = (name) => ({ env }) => (env.episodes && known(env[name]) ? env[name] / env.episodes : null);
  const ranged = (words, pair) => make("span", {}, words, make("span", { class: "quiet" },
    pair ? ` [${pair.map((x) => x.toFixed(2)).join(", ")}]` : ""));
  const last = (name) => ({ env }) => (env[name].length ? env[name].at(-1) : null);
  const samples = Math.max(0, ...rows.map(({ env }) => env.pass_at_k.length));
  const columns = [
    { id: "run", head: "run", text: true, always: true, value: ({ run }) => run.name },
    { id: "model", head: "model", text: true, value: ({ run, env }) => env.model || run.model },
    { id: "env", head: "environment", text: true, value: ({ env }) => env.id, cell: ({ run, env }) => envCell(run, env) },
    { id: "rate", head: "success", value: ({ env }) => env.success_rate, cell: ({ env }) => (!known(env.success_rate) ? "-" : make("div", { class: "result" },
      make("div", {}, percent(env.success_rate), make("span", { class: "quiet" },
        ` ${env.successes}/${env.episodes} [${env.success_interval.map((x) => (100 * x).toFixed(1)).join(", ")}]`)), rateBar(env))) },
    { id: "random", head: "random play", value: ({ env }) => env.random, cell: ({ env }) => percent(env.random) },
    { id: "reward", head: "reward", value: ({ env }) => env.mean_reward, cell: ({ env }) => ranged(fixed(env.mean_reward), env.reward_interval) },
    { id: "pass", head: `pass@${samples}`, value: last("pass_at_k"), cell: (row) => percent(last("pass_at_k")(row)) },
    { id: "all", head: `pass^${samples}`, value: last("pass_hat_k"), cell: (row) => percent(last("pass_hat_k")(row)) },
    { id: "turns", head: "turns", value: per("turns"), cell: (row) => fixed(per("turns")(row), 1) },
    { id: "in", head: "tokens in", value: positive(per("prompt_tokens")), cell: (row) => short(per("prompt_tokens")(row)) },
    { id: "out", head: "tokens out", value: positive(per("completion_tokens")), cell: (row) => short(per("completion_tokens")(row)) },
    { id: "seconds", head: "time", value: ({ env }) => env.seconds, cell: ({ env }) => seconds(env.seconds) },
    { id: "cost", head: "total cost", value: ({ env }) => env.cost, cell: ({ env }) => money(env.cost) },
    { id: "cut", head: "cut off", value: positive(({ env }) => env.cut_off), cell: (row) => episodesLink(row, row.env.cut_off, "cut") },
    { id: "errors", head: "failed", value: positive(({ env }) => env.errors.length), cell: failedCell },
  ];
  return sortableTable({ label: "all numbers", columns, rows, sorted: state.sort, onsort: (sort) => change({ sort }) });
}

/** Number and share of the episodes that the model did not end, and by what they ended. */
function failedCell(row) {
  const failed = row.env.errors.length;
  const causes = Object.entries(row.env.blames).map(([cause, count]) => `${cause} ${count}`).join(", ");
  const share = make("span", { class: "quiet", title: causes }, ` ${percent(failed / (failed + row.env.episodes))}`);
  return failed ? make("span", {}, episodesLink(row, failed, "tone:warn"), share) : "0";
}

/** A number of episodes, with a link to these. */
function episodesLink({ run, env }, count, outcome) {
  const href = address({ tab: "episodes", env: env.id, left: run.name, right: "none", outcome, episode: "" });
  return count ? make("a", { href }, whole(count)) : "0";
}

/** Columns in which nothing was counted are left out. */
const positive = (value) => (row) => value(row) || null;

function envCell(run, env) {
  const kwargs = Object.keys(env.kwargs).length ? ` ${JSON.stringify(env.kwargs)}` : "";
  const link = address({ tab: "episodes", env: env.id, left: run.name, right: "", outcome: "", episode: "" });
  const sample = env.note ? make("span", { class: "warn", title: visible(env.data) }, " sample") : null;
  return make("span", {}, make("a", { href: link }, visible(shortEnv(env.id))),
    make("span", { class: "quiet" }, visible(kwargs)), sample);
}

/** The rate as a bar, its interval as a whisker, random play as a dashed mark. */
function rateBar(env) {
  const x = (share) => (2 + 116 * share).toFixed(1);
  const [low, high] = env.success_interval;
  const chance = known(env.random) ? `, random play ${percent(env.random)}` : "";
  return make("svg", { width: 120, height: 12, role: "img", "aria-label": `${percent(env.success_rate)}${chance}` },
    make("line", { class: "axis", x1: x(0), x2: x(1), y1: 11, y2: 11 }),
    make("rect", { class: "mark", x: x(0), y: 3, width: Math.max(0, x(env.success_rate || 0) - x(0)), height: 6, opacity: .55 }),
    make("line", { class: "whisker", x1: x(low), x2: x(high), y1: 6, y2: 6 }),
    known(env.random) ? make("line", { class: "chance", x1: x(env.random), x2: x(env.random), y1: 0, y2: 11 }) : null);
}
