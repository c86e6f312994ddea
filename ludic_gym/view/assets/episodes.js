"use strict";

// Episodes of one run or of two side by side: filters, order and search; the rows that remain.

let rows = []; // the paired rows of the chosen runs
let shown = []; // those that pass the filters
let sides = []; // positions of the chosen runs in view.runs
let at = -1; // position of the open episode in `shown`

const column = (row, side, name) => view.runs[sides[side]].columns[name][row.at[side]];
const firstSide = (row) => row.at.findIndex((i) => i >= 0);
const envOf = (row) => view.runs[sides[firstSide(row)]].envs[column(row, firstSide(row), "env")].id;

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

/** The runs of the two sides: those of the address, else the first two of the first one's kind. */
function chooseSides() {
  const left = Math.max(0, state.left ? runOf(state.left) : view.runs.findIndex((run) => run.columns.env.length));
  const other = view.runs.findIndex((run, i) => i !== left && run.kind === view.runs[left].kind && run.columns.env.length);
  const right = state.right === "none" ? -1 : state.right ? runOf(state.right) : other;
  sides = right >= 0 && right !== left ? [left, right] : [left];
  rows = pairedRows(sides);
}

function verdict(row, side) {
  if (row.at[side] < 0) return { word: "not played", tone: "quiet" };
  if (column(row, side, "error")) return { word: "error", tone: "warn" };
  return { word: column(row, side, "outcome"), tone: column(row, side, "success") ? "good" : "bad" };
}

const played = (row) => row.at.map((_, side) => side).filter((side) => row.at[side] >= 0);
const differs = (row) => row.at.some((_, side) => verdict(row, side).tone !== verdict(row, 0).tone);

function matches(row) {
  if (state.env && envOf(row) !== state.env) return false;
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
    const episode = await transcript(sides[side], row.at[side]);
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
  const ids = [...new Set(sides.flatMap((r) => view.runs[r].envs.map((env) => env.id)))];
  const words = [...new Set(sides.flatMap((r) => view.runs[r].columns.outcome))].sort();
  const pairs = sides.length > 1;
  const orders = [["", "as played"], ...["reward", "turns", "tokens", "seconds", "cost"].filter((name) =>
    sides.some((r) => view.runs[r].columns[name].some(known))).flatMap((name) =>
    [[`-${name}`, `${name}, largest first`], [name, `${name}, smallest first`]]),
  ...(pairs ? [["-difference", "difference of rewards"]] : [])];
  const others = view.runs.filter((run) => run.columns.env.length).map((run) => [run.name, run.name]);
  const chooseRun = (name) => (value) => { change({ [name]: value, episode: "" }); at = -1; chooseSides(); drawFilters(); refilter(); };
  $("filters").replaceChildren(...[
    others.length > 1 ? choice("run", others, view.runs[sides[0]].name, chooseRun("left")) : null,
    others.length > 1 ? choice("beside it", [["none", "no other run"], ...others.filter(([name]) => name !== view.runs[sides[0]].name)],
      pairs ? view.runs[sides[1]].name : "none", chooseRun("right")) : null,
    ids.length > 1 ? choice("environment", [["", "all"], ...ids.map((id) => [id, shortEnv(id)])], state.env, set("env")) : null,
    choice("outcome", [["", "any"], ["tone:good", "successes"], ["tone:bad", "no successes"], ["tone:warn", "errors"],
      ["cut", "cut off"], ...words.map((word) => [`is:${word}`, `outcome: ${word}`])], state.outcome, set("outcome")),
    choice("order", orders, state.order, set("order")),
    pairs ? checkbox("only where the runs differ", state.differ === "1", (on) => set("differ")(on ? "1" : "")) : null,
    searchField("search transcripts", "search", state.text, set("text")),
    make("span", { id: "count", class: "quiet", role: "status" }),
  ].filter(Boolean));
}
