"use strict";

/**
 * A table that its headings sort.
 *
 * columns: {id, head, value(row), cell(row), text, plain}; value sorts, cell shows (the value by
 * default), text aligns left, plain columns do not sort.
 * foot: rows that stay at the end. wraps: true for cells of long texts. sorted: an id, with "-" in front for largest first.
 */
function sortableTable({ label, columns, rows, foot = [], sorted, onsort, wraps = false }) {
  const body = make("tbody");
  const shown = columns.filter((c) => c.always || rows.some((row) => known(c.value(row)) && c.value(row) !== ""));
  const line = (row, name) => make("tr", { class: name }, ...shown.map((c, i) => {
    const content = c.cell ? c.cell(row) : visible(String(c.value(row) ?? "-"));
    const attributes = { class: c.text ? "text" : null, "data-label": c.head };
    return i ? make("td", attributes, content) : make("th", { ...attributes, scope: "row" }, content);
  }));
  const heads = shown.map((c) => {
    const head = make("th", { scope: "col", class: c.text ? "text" : null });
    if (c.plain) head.append(visible(c.head));
    else {
      head.append(make("button", { type: "button", class: "sort", onclick: () => {
        const first = c.text ? c.id : `-${c.id}`;
        const turned = c.text ? `-${c.id}` : c.id;
        sorted = sorted === first ? turned : first;
        onsort(sorted);
        fill();
      } }, visible(c.head)));
    }
    return head;
  });

  function fill() {
    const down = sorted.startsWith("-");
    const by = shown.find((c) => c.id === sorted.replace(/^-/, ""));
    const list = by ? [...rows].sort((a, b) => compareValues(by.value(a), by.value(b), down)) : rows;
    body.replaceChildren(...list.map((row) => line(row)), ...foot.map((row) => line(row, "foot")));
    shown.forEach((c, i) => {
      if (c === by) heads[i].setAttribute("aria-sort", down ? "descending" : "ascending");
      else heads[i].removeAttribute("aria-sort");
    });
  }

  fill();
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    make("table", { class: wraps ? "wraps" : null }, make("thead", {}, make("tr", {}, ...heads)), body));
}

/** Order of two values; unknown ones come last, in both directions. */
function compareValues(a, b, down) {
  if (!known(a) || !known(b)) return known(a) ? -1 : known(b) ? 1 : 0;
  const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
  return down ? -order : order;
}
