// The parameters as controls, made from what `fields.js` reads in the OpenAPI document.
// Always: what is left empty is not sent, so that the server's own default holds and is shown as such.

import { el } from "./dom.js";
import { groupsOf, rangeOf, read, written } from "./fields.js";

const SLIDERS = { temperature: 0.01, top_p: 0.01, min_p: 0.005 };
/** Numbers that are felt rather than known, with the steps of their sliders. */
const OPEN = ["Choice", "Length"];

export class ParameterForm {
  /** `defaults`: of the served model, by field. */
  constructor(document, defaults, models) {
    this._controls = new Map();
    const groups = groupsOf(document).map(({ title, fields }) => this._group(title, fields, defaults, models));
    this.element = el("div", { class: "parameters" }, ...groups);
  }

  /** The fields that were filled in. Throws RangeError, and shows where. */
  values() {
    const values = {};
    let first = null;
    for (const [name, { field, input, fault }] of this._controls) {
      try {
        fault(null);
        const value = read(field, input.value);
        if (value !== undefined) values[name] = value;
      } catch (error) {
        fault(error.message);
        first ??= [name, error.message];
      }
    }
    if (first) {
      this.focus(first[0]);
      throw new RangeError(`${first[0]} ${first[1]}`);
    }
    return values;
  }

  fill(values) {
    for (const [name, { field, input, fault }] of this._controls) {
      input.value = written(field, values[name]);
      input.dispatchEvent(new Event("input"));
      fault(null);
    }
  }

  /** Show what the server says of a field. Answers whether it is here. */
  blame(param, message) {
    const control = this._controls.get(String(param ?? "").split(".")[0]);
    control?.fault(message);
    return control !== undefined;
  }

  focus(name) {
    const { input } = this._controls.get(name);
    input.closest("details").open = true;
    input.focus();
  }

  _group(title, fields, defaults, models) {
    const rows = fields.map((field) =>
      this._row(field.name === "model" ? { ...field, kind: "choice", options: models } : field, defaults[field.name]),
    );
    return el(
      "details",
      { class: "group", open: OPEN.includes(title) },
      el("summary", {}, el("span", { text: title })),
      ...rows,
    );
  }

  _row(field, own) {
    const id = `field-${field.name}`;
    const input = control(field, id, own ?? field.initial);
    const problem = el("p", { class: "problem", id: `${id}-problem`, hidden: true });
    const note = el("p", { class: "note", id: `${id}-note` }, ...prose(field.description));
    const fault = (message) => {
      problem.hidden = message === null;
      problem.textContent = message ?? "";
      input.toggleAttribute("aria-invalid", message !== null);
    };
    this._controls.set(field.name, { field, input, fault });
    const label = el(
      "label",
      { for: id },
      el("span", { text: words(field.name) }),
      el("span", { class: "range", text: rangeOf(field) }),
    );
    const slider = field.name in SLIDERS ? sliderOf(field, input, own) : null;
    return el("div", { class: slider ? "field slides" : "field" }, label, slider, input, note, problem);
  }
}

/** A description, in which what stands between backticks is code. */
function prose(description) {
  return description.split("`").map((part, index) => (index % 2 ? el("code", { text: part }) : part));
}

export const words = (name) =>
  name
    .replace(/_/g, " ")
    .replace(/^top (.)$/, "top-$1")
    .replace(/^min p$/, "min-p");

function control(field, id, initial) {
  const common = { id, "aria-describedby": `${id}-note ${id}-problem` };
  const hint = initial === null || typeof initial === "object" ? "" : shortly(String(initial));
  switch (field.kind) {
    case "choice":
      return select(common, field.options, hint);
    case "boolean":
      return select(common, ["true", "false"], hint, { true: "yes", false: "no" });
    case "list":
    case "json":
      return el("textarea", { ...common, rows: 1, spellcheck: "false", placeholder: "none", class: "code" });
    case "text":
      return el("input", { ...common, spellcheck: "false", placeholder: hint || "none" });
    default:
      return el("input", { ...common, inputmode: "decimal", placeholder: hint || "none", class: "number" });
  }
}

/** What the document says of a default, without what the note beside it says already. */
function shortly(initial) {
  return initial.replace(/^the model's own, else /, "").replace(/,.*$/, "");
}

function select(common, options, hint, names = {}) {
  const first = el("option", { value: "", text: hint ? `${names[hint] ?? hint} (default)` : "default" });
  return el(
    "select",
    common,
    first,
    ...options.map((option) => el("option", { value: option, text: names[option] ?? option })),
  );
}

function sliderOf(field, input, own) {
  const rest = own ?? (field.name === "min_p" ? 0 : 1);
  const slider = el("input", {
    type: "range",
    min: field.minimum,
    max: field.maximum,
    step: SLIDERS[field.name],
    value: rest,
    tabindex: -1,
    "aria-hidden": "true",
  });
  slider.addEventListener("input", () => {
    input.value = field.exclusive && Number(slider.value) <= field.minimum ? slider.step : slider.value;
  });
  input.addEventListener("input", () => {
    slider.value = input.value === "" ? rest : input.value;
  });
  return slider;
}
