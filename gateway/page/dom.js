// Elements made of text: nothing that came over the network is ever read as markup.

/** Makes an element. Attributes that are null or false are left out, true ones have no value, `on…` are listeners. */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Makes an SVG element. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** A table that scrolls by itself. A column is [title, cell of a row, class]; a cell is text or an element. */
export function table(caption, columns, rows, none = "none") {
  const head = columns.map(([title, , kind]) => el("th", { scope: "col", class: kind }, title));
  const line = (row) => el("tr", {}, columns.map(([, cell, kind]) => el("td", { class: kind }, cell(row) ?? "")));
  const body = rows.length ? rows.map(line) : [el("tr", {}, el("td", { colspan: columns.length, class: "soft" }, none))];
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

/** A list of names with values. */
export function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

/** A field of a form, with its label. */
export function field(label, attributes, options) {
  const input = options
    ? el("select", attributes, options.map((option) => el("option", { value: option }, option)))
    : el("input", { type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "none", ...attributes });
  return el("label", { class: attributes.wide ? "wide" : null }, label, input);
}

const digits = new Intl.NumberFormat("en-GB");

export const count = (number) => digits.format(number ?? 0);

/** A number of things. */
export const many = (number, one, more) => `${count(number)} ${number === 1 ? one : more}`;

/** A number with a prefix of the SI. */
export function si(number, unit) {
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let place = 0;
  while (Math.abs(number) >= 1000 && place < prefixes.length - 1) {
    number /= 1000;
    place += 1;
  }
  return `${number.toFixed(place && number < 100 ? 1 : 0)} ${prefixes[place]}${unit}`;
}

export function duration(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/** A delay in nanoseconds. */
export function delay(ns) {
  if (ns < 1e3) return `${ns} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(1)} µs`;
  return ns < 1e9 ? `${(ns / 1e6).toFixed(1)} ms` : `${(ns / 1e9).toFixed(2)} s`;
}
