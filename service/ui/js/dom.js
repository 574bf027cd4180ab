// Elements, made without markup. Knows nothing of Tane.
// Always: text goes in as text, so that nothing a model or a caller writes is ever read as markup.

/** An element. Names that begin with "on" are listeners, "class" and "text" say what they say, `true` is a bare attribute. */
export function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "text") element.textContent = value;
    else if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A table that scrolls sideways where it is too wide. `label` names it to screen readers; `rows` are elements. */
export function plainTable(label, names, rows) {
  const head = names.map((name) => el("th", { scope: "col", text: name }));
  return el(
    "div",
    { class: "scroller", tabindex: 0, role: "region", "aria-label": label },
    el("table", { class: "plain" }, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)),
  );
}

const SVG = "http://www.w3.org/2000/svg";

/** The same for drawings. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "text") element.textContent = value;
    else if (value !== undefined && value !== null) element.setAttribute(key, value);
  }
  element.append(...children.filter(Boolean));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** A number for people: `digits` significant ones at most. */
export function figure(value, digits = 3) {
  return new Intl.NumberFormat("en", { maximumSignificantDigits: digits }).format(value);
}

export function percent(value) {
  if (value >= 0.9995) return "100 %";
  if (value > 0 && value < 0.0005) return "< 0.1 %";
  return `${(100 * value).toFixed(1)} %`;
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${figure(value)} ${units[unit]}`;
}

/** Text in which what is usually not seen can be seen. */
export function visible(text) {
  if (text === "") return "∅";
  return text
    .replace(/ /g, "␣")
    .replace(/\n/g, "↵")
    .replace(/\t/g, "⇥")
    .replace(/[\u0000-\u001f\u007f]/g, "·");
}
