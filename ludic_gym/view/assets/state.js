"use strict";

// The state of the page is its address, so that every view of it can be linked to.

const DEFAULTS = {
  tab: "", find: "", measure: "success", base: "", sort: "", metric: "", smooth: "0", log: "", hide: "",
  left: "", right: "", update: "", beside: "", use: "", env: "", outcome: "", differ: "", text: "", order: "", episode: "",
};
const state = { ...DEFAULTS };

function readAddress() {
  const [tab, rest = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const named = new URLSearchParams(rest);
  Object.assign(state, DEFAULTS, { tab });
  for (const name of Object.keys(DEFAULTS)) if (named.has(name)) state[name] = named.get(name);
}

function address(changes = {}) {
  const { tab, ...rest } = { ...state, ...changes };
  const set = Object.entries(rest).filter(([name, value]) => value !== DEFAULTS[name]);
  return `#/${tab}${set.length ? `?${new URLSearchParams(set)}` : ""}`;
}

let pending = 0;
/** Change the state and, a moment later, the address; the caller redraws what depends on it. */
function change(changes) {
  clearTimeout(pending);
  // Only a change of the tab is a step back in the browser's history, not every key of a search.
  const opened = changes.tab !== undefined && changes.tab !== state.tab;
  Object.assign(state, changes);
  if (opened) history.pushState(null, "", address());
  // Browsers refuse more than some hundred changes in half a minute, such as those of a held key.
  else pending = setTimeout(() => history.replaceState(null, "", address()), 300);
}
