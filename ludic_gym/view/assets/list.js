"use strict";

// The list of episodes; only the rows in sight are in the document, whatever their number.

const ROW = 46; // px, as in the style sheet

function showRows(found, note = "") {
  shown = found;
  at = shown.findIndex((row) => row.key === state.episode);
  $("spacer").style.height = `${found.length * ROW}px`;
  $("count").textContent = note || `${whole(found.length)} of ${whole(rows.length)}`;
  if (at >= 0) choose(at);
  else if (found.length && !note) choose(0);
  else drawRows();
  if (!found.length && !note) $("episode").replaceChildren(make("p", { class: "quiet" }, "No episode passes these filters."));
}

function drawRows() {
  const box = $("rows");
  const from = Math.max(0, Math.floor(box.scrollTop / ROW) - 5);
  const to = Math.min(shown.length, from + Math.ceil(box.clientHeight / ROW) + 10);
  const lines = [];
  for (let i = from; i < to; i++) lines.push(rowElement(i));
  $("spacer").replaceChildren(...lines);
  const inSight = at >= from && at < to;
  if (inSight) box.setAttribute("aria-activedescendant", `row-${at}`);
  else box.removeAttribute("aria-activedescendant");
}

function rowElement(i) {
  const row = shown[i];
  const side = firstSide(row);
  const run = runAt(side);
  const nth = column(row, side, "nth");
  const index = column(row, side, "index");
  const label = run.kind === "train" ? played(row).map((k) => playedFor(row, k)).join(" and ") : nth ? `${index} #${nth + 1}` : `${index}`;
  const name = run.envs.length > 1 ? ` ${shortEnv(envOf(row))}` : "";
  const lines = row.at.map((_, k) => {
    const { word, tone } = verdict(row, k);
    return make("span", { class: "of-side" }, make("span", { class: tone }, visible(word)),
      row.at[k] >= 0 ? make("span", { class: "quiet" }, fixed(column(row, k, "reward"))) : null);
  });
  const facts = sides.length > 1 ? null : make("span", { class: "facts quiet" }, factsOf(row, 0));
  const element = make("div", {
    class: "row", role: "option", id: `row-${i}`, "aria-selected": String(i === at),
    "aria-setsize": shown.length, "aria-posinset": i + 1, onclick: () => choose(i),
  }, make("span", { class: "name" }, make("span", {}, visible(label + name)), facts), make("span", { class: "sides-of" }, ...lines));
  element.style.top = `${i * ROW}px`;
  return element;
}

/** The update of a rollout of training, or that of an evaluation. */
function playedFor(row, side) {
  return updateName(column(row, side, "nth")) + (column(row, side, "use") === "evaluate" ? ", evaluation" : "");
}

/** Weight, turns, tokens, seconds and cost of an episode. */
function factsOf(row, side) {
  const value = (name) => column(row, side, name);
  return [known(value("weight")) ? `weight ${short(value("weight"))}` : "", turnCount(value("turns")), value("tokens") ? `${whole(value("tokens"))} tokens` : "",
    known(value("seconds")) ? seconds(value("seconds")) : "", known(value("cost")) ? `cost ${money(value("cost"))}` : "",
    value("cut_off") ? "cut off" : ""].filter(Boolean).join(" \u00b7 ");
}

const turnCount = (n) => `${n} turn${n === 1 ? "" : "s"}`;

function choose(i) {
  if (i < 0 || i >= shown.length) return;
  at = i;
  if (state.episode !== shown[i].key) change({ episode: shown[i].key });
  const box = $("rows");
  if (i * ROW < box.scrollTop) box.scrollTop = i * ROW;
  if ((i + 1) * ROW > box.scrollTop + box.clientHeight) box.scrollTop = (i + 1) * ROW - box.clientHeight;
  drawRows();
  drawEpisode(shown[i]);
}

function chooseWhere(test) {
  for (let k = 1; k <= shown.length; k++) {
    const i = (at + k) % shown.length;
    if (test(shown[i])) return choose(i);
  }
}
