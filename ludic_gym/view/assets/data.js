"use strict";

// The data in the page: results and columns at once, transcripts when they are opened.

let view = JSON.parse($("data").textContent);
let fetched = null; // chunks by name, once they come from a server
const unpacked = new Map(); // the last chunks that were opened

const ofKind = (kind) => view.runs.filter((run) => run.kind === kind);
const runOf = (name) => view.runs.findIndex((run) => run.name === name);
const hasEpisodes = () => view.runs.some((run) => run.columns.env.length);

/** The transcripts of a chunk. */
async function unpack(name) {
  const text = fetched ? fetched[name] : $(name).textContent;
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** The chunk that has a row of a run: its number, or -1 where only the score was kept. */
function chunkOf(run, row) {
  const chunks = view.runs[run].chunks;
  let [low, high] = [0, chunks.length - 1];
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (row < chunks[middle].start) high = middle - 1;
    else if (row >= chunks[middle].start + chunks[middle].count) low = middle + 1;
    else return middle;
  }
  return -1;
}

/** The transcript of a run's row, or null where only its score was kept. */
async function transcript(run, row) {
  const i = chunkOf(run, row);
  if (i < 0) return null;
  const name = `chunk-${run}-${i}`;
  if (!unpacked.has(name)) {
    if (unpacked.size >= 8) unpacked.delete(unpacked.keys().next().value);
    unpacked.set(name, unpack(name));
  }
  return (await unpacked.get(name))[row - view.runs[run].chunks[i].start];
}

/**
 * The episodes of up to two sides, each a run and one of its updates or "" for all: for each task
 * its key, and its row on each side, -1 where a side lacks it. Samples of a task are paired by
 * number, rollouts of training by update; of two updates, tasks that both have come first.
 */
function pairedRows(sides) {
  const rows = new Map();
  const ofUpdates = sides.length > 1 && sides[0].run === sides[1].run;
  sides.forEach(({ run, update }, side) => {
    const { env, task, nth, use } = view.runs[run].columns;
    const copies = new Map(); // an update may have the same task several times
    for (let i = 0; i < env.length; i++) {
      if (update && String(nth[i]) !== update) continue;
      const name = `${view.runs[run].envs[env[i]].id}|${task[i]}|${ofUpdates ? use[i] : nth[i]}`;
      const copy = copies.get(name) ?? 0;
      copies.set(name, copy + 1);
      const key = copy ? `${name}'${copy}` : name;
      if (!rows.has(key)) rows.set(key, { key, at: sides.map(() => -1) });
      rows.get(key).at[side] = i;
    }
  });
  const missing = (row) => row.at.filter((i) => i < 0).length;
  const all = [...rows.values()];
  return ofUpdates ? all.sort((a, b) => missing(a) - missing(b)) : all;
}

/** The updates of a run that the page has rollouts of, as texts. */
const updatesOf = (run) => [...new Set(view.runs[run].columns.nth.map(String))];
const updateName = (update) => (String(update) === "null" ? "no update" : `update ${update}`);
