"use strict";

// Settings of the runs: those in which they differ first, the others folded.

function drawSettings(box) {
  const flat = view.runs.map((run) => Object.fromEntries(flattened(run.about)));
  const names = [...new Set(flat.flatMap((settings) => Object.keys(settings)))].sort();
  const differ = (name) => flat.some((settings) => settings[name] !== flat[0][name]);
  const table = (label, rows) => sortableTable({
    label, rows, sorted: "", onsort: () => {}, wraps: true,
    columns: [
      { id: "setting", head: "setting", text: true, always: true, value: (name) => name },
      ...view.runs.map((run, r) => ({ id: run.name, head: run.name, text: true, always: true, plain: true,
        value: (name) => flat[r][name] ?? "-" })),
    ],
  });
  const several = view.runs.length > 1;
  if (several) {
    const found = names.filter(differ);
    box.append(make("h2", {}, "Settings that differ"),
      found.length ? table("settings that differ", found) : make("p", { class: "quiet" }, "none"));
  }
  const equal = names.filter((name) => !several || !differ(name));
  box.append(make("details", { open: !several }, make("summary", {}, several ? `${equal.length} equal settings` : "Settings"),
    table("settings", equal)));
}

/** {"a": {"b": 1}} as [["a.b", "1"]]; lists as JSON, nothing for null. */
function flattened(value, name = "") {
  if (value === null || value === undefined) return [];
  if (typeof value !== "object") return [[name, String(value)]];
  if (Array.isArray(value)) return [[name, JSON.stringify(value)]];
  return Object.entries(value).flatMap(([key, item]) => flattened(item, name ? `${name}.${key}` : key));
}
