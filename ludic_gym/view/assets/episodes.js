"use strict";

// Episodes of one run, or of two runs or updates side by side: filters, order and search; the rows that remain.

let rows = []; // the paired rows of the chosen runs
let shown = []; // those that pass the filters
let sides = []; // the chosen runs: positions in view.runs, each with an update or "" for all
let at = -1; // position of the open episode in `shown`

const runAt = (side) => view.runs[sides[side].run];
const column = (row, side, name) => runAt(side).columns[name]?.[row.at[side]];
const firstSide = (row) => row.at.findIndex((i) => i >= 0);
const envOf = (row) => runAt(firstSide(row)).envs[column(row, firstSide(row), "env")].id;

function drawEpisodes(box) {
  chooseSides();
  box.append(make("section", { id: "browser", "aria-label": "episodes" },
    make("form", { id: "filters", class: "controls", role: "search", onsubmit: (event) => event.preventDefault() }),
    make("div", { id: "rows", role: "listbox", tabindex: "0", "aria-label": "episodes", onscroll: drawRows },
      make("div", { id: "spacer" })),
    make("article", { id: "episode", tabindex: "-1", "aria-label": "the chosen episode" })));
  drawFilters();
  refilter();
}

/** The two sides: runs or updates of the address, else the first two runs of the first one's kind. */
function chooseSides() {
  const left = Math.max(0, state.left ? runOf(state.left) : view.runs.findIndex((run) => run.columns.env.length));
  const other = view.runs.findIndex((run, i) => i !== left && run.kind === view.runs[left].kind && run.columns.env.length);
  const right = state.right === "none" ? -1 : state.right ? runOf(state.right) : other;
  const update = view.runs[left].kind === "train" ? state.update : "";
  sides = [{ run: left, update }];
  if (update && state.beside) sides.push({ run: left, update: state.beside });
  else if (right >= 0 && right !== left) sides.push({ run: right, update });
  rows = pairedRows(sides);
}

function verdict(row, side) {
  if (row.at[side] < 0) return { word: "not played", tone: "quiet" };
  if (column(row, side, "error")) return { word: "error", tone: "warn" };
  const success = column(row, side, "success");
  return { word: column(row, side, "outcome"), tone: success ? "good" : known(success) ? "bad" : "quiet" };
}

const played = (row) => row.at.map((_, side) => side).filter((side) => row.at[side] >= 0);
const differs = (row) => row.at.some((_, side) => verdict(row, side).tone !== verdict(row, 0).tone);

function matches(row) {
  if (state.env && envOf(row) !== state.env) return false;
  if (state.use && !played(row).some((side) => column(row, side, "use") === state.use)) return false;
  if (state.differ && !differs(row)) return false;
  if (!state.outcome) return true;
  if (state.outcome === "cut") return played(row).some((side) => column(row, side, "cut_off"));
  return row.at.some((_, side) => {
    const { word, tone } = verdict(row, side);
    return state.outcome === `tone:${tone}` || state.outcome === `is:${word}`;
  });
}

/** The number by which rows are sorted; of two runs the first one's, null where it has none. */
function orderValue(row, name) {
  if (name === "difference") {
    return played(row).length < 2 ? null : Math.abs(column(row, 1, "reward") - column(row, 0, "reward"));
  }
  return column(row, firstSide(row), name);
}

function ordered(list) {
  const name = state.order.replace(/^-/, "");
  if (!name) return list;
  const down = state.order.startsWith("-");
  return list.map((row) => [orderValue(row, name), row])
    .sort((a, b) => compareValues(a[0], b[0], down)).map(([, row]) => row);
}

/** True if the row's transcripts have the text, in any case. */
async function holds(row, needle) {
  for (const side of played(row)) {
    const episode = await transcript(sides[side].run, row.at[side]);
    if (episode && textsOf(episode).some((text) => text && text.toLowerCase().includes(needle))) return true;
  }
  return false;
}

/** Every text of an episode that its transcript shows. */
function textsOf(episode) {
  const texts = [episode.error];
  for (const rollout of episode.rollouts) {
    texts.push(rollout.final);
    for (const step of rollout.steps) {
      texts.push(step.observation, step.action, step.feedback, JSON.stringify(step.info));
      for (const completion of step.completions) {
        texts.push(completion.text, completion.reasoning, completion.prompt, ...completion.tools.map((call) => call.arguments));
        if (completion.call) texts.push(...completion.call.messages.map((message) => message.content));
      }
    }
  }
  return texts;
}

let searching = 0;
/** Show the rows that match; transcripts are searched in slices, so that typing stays fluid. */
async function refilter() {
  const mine = ++searching;
  // In the order of the data first: a chunk is then unpacked once.
  const candidates = rows.filter(matches);
  const needle = state.text.toLowerCase();
  if (!needle) return showRows(ordered(candidates));
  const found = [];
  let pause = performance.now() + 100;
  for (let i = 0; i < candidates.length; i++) {
    const held = await holds(candidates[i], needle);
    if (mine !== searching || state.tab !== "episodes") return;
    if (held) found.push(candidates[i]);
    if (performance.now() > pause) {
      showRows(ordered(found), `searching, ${i + 1} of ${candidates.length}`);
      await new Promise((resolve) => setTimeout(resolve));
      pause = performance.now() + 100;
    }
  }
  showRows(ordered(found));
}

function drawFilters() {
  const set = (name) => (value) => { change({ [name]: value }); refilter(); };
  const chosen = [...new Set(sides.map(({ run }) => run))].map((run) => view.runs[run]);
  const ids = [...new Set(chosen.flatMap((run) => run.envs.map((env) => env.id)))];
  const words = [...new Set(chosen.flatMap((run) => run.columns.outcome))].sort();
  const pairs = sides.length > 1;
  const orders = [["", "as played"], ...["reward", "weight", "turns", "tokens", "seconds", "cost"].filter((name) =>
    chosen.some((run) => run.columns[name]?.some(known))).flatMap((name) =>
    [[`-${name}`, `${name}, largest first`], [name, `${name}, smallest first`]]),
  ...(pairs ? [["-difference", "difference of rewards"]] : [])];
  const others = view.runs.filter((run) => run.columns.env.length).map((run) => [run.name, run.name]);
  const updates = chosen[0].kind === "train" ? updatesOf(sides[0].run).map((u) => [u, updateName(u)]) : [];
  const byUpdate = pairs && chosen.length === 1;
  const chooseSide = (name) => (value) => { change({ [name]: value, episode: "" }); at = -1; chooseSides(); drawFilters(); refilter(); };
  $("filters").replaceChildren(...[
    others.length > 1 ? choice("run", others, chosen[0].name, chooseSide("left")) : null,
    others.length > 1 ? choice("beside it", [["none", "no other run"], ...others.filter(([name]) => name !== chosen[0].name)],
      chosen.length > 1 ? chosen[1].name : "none", chooseSide("right")) : null,
    updates.length > 1 ? choice("update", [["", "all"], ...updates], sides[0].update, chooseSide("update")) : null,
    updates.length > 1 && sides[0].update ? choice("beside", [["", "no other update"], ...updates.filter(([u]) => u !== sides[0].update)],
      byUpdate ? sides[1].update : "", chooseSide("beside")) : null,
    updates.length ? choice("use", [["", "all"], ["train", "training"], ["evaluate", "evaluation"]], state.use, set("use")) : null,
    ids.length > 1 ? choice("environment", [["", "all"], ...ids.map((id) => [id, shortEnv(id)])], state.env, set("env")) : null,
    choice("outcome", [["", "any"], ["tone:good", "successes"], ["tone:bad", "no successes"], ["tone:warn", "errors"],
      ["cut", "cut off"], ...words.map((word) => [`is:${word}`, `outcome: ${word}`])], state.outcome, set("outcome")),
    choice("order", orders, state.order, set("order")),
    pairs ? checkbox(`only where the ${byUpdate ? "updates" : "runs"} differ`, state.differ === "1", (on) => set("differ")(on ? "1" : "")) : null,
    searchField("search transcripts", "search", state.text, set("text")),
    make("span", { id: "count", class: "quiet", role: "status" }),
    ...chosen.filter((run) => run.note).map((run) => make("span", { class: "quiet" }, visible(run.note))),
  ].filter(Boolean));
}
