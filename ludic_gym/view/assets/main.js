"use strict";

// Tabs, keys and updates of a served page.

const TABS = {
  results: ["Results", () => ofKind("bench").length, drawResults],
  curves: ["Curves", () => ofKind("train").some((run) => run.curves.length), drawCurves],
  episodes: ["Episodes", hasEpisodes, drawEpisodes],
  settings: ["Settings", () => true, drawSettings],
};
const openTabs = () => Object.keys(TABS).filter((tab) => TABS[tab][1]());

function draw() {
  if (!openTabs().includes(state.tab)) state.tab = openTabs()[0];
  $("title").textContent = view.title;
  $("tabs").replaceChildren(...openTabs().map((tab) => make("a", {
    href: address({ tab }), "aria-current": tab === state.tab ? "page" : null,
  }, TABS[tab][0])));
  clearCharts();
  $("main").replaceChildren();
  TABS[state.tab][2]($("main"));
}

function openTab(i) {
  const tab = openTabs()[i];
  if (!tab || tab === state.tab) return;
  change({ tab });
  draw();
}

const inEpisodes = (action) => () => { if (state.tab === "episodes") action(); };

const KEYS = {
  1: ["first view", () => openTab(0)],
  2: ["second view", () => openTab(1)],
  3: ["third view", () => openTab(2)],
  4: ["fourth view", () => openTab(3)],
  "/": ["search", () => ($("search") || $("find"))?.focus()],
  j: ["next episode", inEpisodes(() => choose(at + 1))],
  k: ["previous episode", inEpisodes(() => choose(Math.max(0, at - 1)))],
  n: ["next that is no success", inEpisodes(() => chooseWhere((row) => row.at.some((_, side) => verdict(row, side).tone !== "good")))],
  d: ["next where the runs differ", inEpisodes(() => chooseWhere(differs))],
  "]": ["next turn", inEpisodes(() => stepTurn(1))],
  "[": ["previous turn", inEpisodes(() => stepTurn(-1))],
  o: ["open or close all folded parts", inEpisodes(toggleFolds)],
  t: ["light or dark", toggleTheme],
  "?": ["these keys", () => $("keys").showModal()],
};
const ARROWS = { ArrowDown: "j", ArrowUp: "k" };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const arrow = event.target.id === "rows" ? ARROWS[event.key] : undefined;
  const found = KEYS[arrow || event.key];
  if (!found) return;
  event.preventDefault();
  found[1]();
});

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  recolourCharts();
}

function drawKeys() {
  const lines = Object.entries(KEYS).map(([key, [words]]) => make("p", {}, make("kbd", {}, key), ` ${words}`));
  $("keys").replaceChildren(...lines, make("button", { type: "button", onclick: () => $("keys").close() }, "close"));
}

/** Ask the server for changes of the runs, and draw them. */
async function refresh() {
  const read = (path) => fetch(path, { cache: "no-store" }).then((response) => (response.ok ? response.text() : ""), () => "");
  const version = await read("version");
  const news = version && version !== view.version ? await read("data.json") : "";
  if (news) {
    const { view: changed, chunks } = JSON.parse(news);
    view = changed;
    fetched = chunks;
    unpacked.clear();
    const places = [scrollY, $("rows")?.scrollTop];
    draw();
    scrollTo(0, places[0]);
    if ($("rows")) $("rows").scrollTop = places[1];
  }
  setTimeout(refresh, 2000);
}

$("theme").addEventListener("click", toggleTheme);
$("help").addEventListener("click", () => $("keys").showModal());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolourCharts);
addEventListener("resize", () => {
  resizeCharts();
  if (state.tab === "episodes") drawRows();
});
addEventListener("hashchange", () => { readAddress(); draw(); });
drawKeys();
readAddress();
draw();
if (view.version) refresh();
