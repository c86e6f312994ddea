"use strict";

// Elements and texts. All text from runs goes through textContent, never through markup.

const $ = (id) => document.getElementById(id);
const SVG = new Set(["svg", "rect", "line"]);

/** An element: attributes, then children, which are elements or text. Null children are left out. */
function make(tag, attributes = {}, ...children) {
  const element = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
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

const known = (x) => x !== null && x !== undefined;
const percent = (x) => (known(x) ? `${(100 * x).toFixed(1)}%` : "-");
const fixed = (x, digits = 2) => (known(x) ? x.toFixed(digits) : "-");
const whole = (x) => (known(x) ? x.toLocaleString("en") : "-");
const signed = (x, digits) => `${x > 0 ? "+" : x < 0 ? "\u2212" : ""}${Math.abs(x).toFixed(digits)}`;
const seconds = (x) => (!known(x) ? "-" : x < 10 ? `${x.toFixed(2)} s` : `${x.toFixed(0)} s`);

/** Four digits. */
function short(x) {
  if (!known(x)) return "-";
  return Math.abs(x) >= 1e5 || (x && Math.abs(x) < 1e-3) ? x.toExponential(2) : String(+x.toPrecision(4));
}

/** An amount of money, which may be a small part of a cent. */
const money = (x) => (!known(x) ? "-" : x && Math.abs(x) < 0.01 ? x.toPrecision(2) : x.toFixed(2));

const shortEnv = (id) => id.replace(/^ludic\//, "");

/** A labelled choice. options: [value, words]. */
function choice(label, options, value, onchange) {
  const element = make("select", { "aria-label": label, onchange: () => onchange(element.value) },
    ...options.map(([v, words]) => make("option", { value: v }, visible(words))));
  element.value = value;
  return make("label", {}, make("span", {}, label), element);
}

function checkbox(label, checked, onchange) {
  const box = make("input", { type: "checkbox", checked, onchange: () => onchange(box.checked) });
  return make("label", {}, box, label);
}

/** A field whose words are used a moment after the last key. */
function searchField(label, id, value, oninput) {
  let waiting = 0;
  const field = make("input", { type: "search", id, "aria-label": label, placeholder: label, value,
    oninput: () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => oninput(field.value), 150);
    } });
  return field;
}
