// A beam search, step by step: every beam at its rank, where it came from, where it was let go, and which one won.
// Knows the `beams` of an explained answer. Always: what is drawn was searched by the server; the path of always taking the
// likeliest stands below, asked for beside it.

import { call } from "./api.js";
import { byId, el, figure, percent, svg, visible } from "./dom.js";
import { fieldOf, rangeOf, read } from "./fields.js";

const [COLUMN, ROW, LEFT, TOP] = [104, 50, 92, 30];
const STEP_MS = 90;
const CONTROLS = [["beam_width", "4"], ["max_new_tokens", "12"], ["length_penalty", ""]];

export function view(section, { document: api }) {
  const fields = CONTROLS.map(([name, initial]) => ({ field: fieldOf(api, name), input: el("input", { id: `beam-${name}`, class: "number", inputmode: "decimal", value: initial, placeholder: "0", "aria-describedby": `beam-${name}-note` }) }));
  const prompt = el("textarea", { id: "beam-prompt", class: "prose", rows: 2 });
  prompt.value = "The capital of France is";
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const result = el("div", { class: "search" });
  const form = el("form", { class: "ask" },
    el("label", { class: "unseen", for: "beam-prompt", text: "Prompt" }), prompt,
    el("div", { class: "ask-fields" }, ...fields.map(({ field, input }) => el("div", {}, el("label", { for: input.id, text: field.name.replace(/_/g, " ") }), input, el("small", { class: "note", id: `${input.id}-note`, text: rangeOf(field) }))),
      el("button", { class: "primary", type: "submit", text: "Search" })), problem);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.hidden = true;
    try {
      const asked = { prompt: prompt.value, ...Object.fromEntries(fields.map(({ field, input }) => [field.name, read(field, input.value)])) };
      await search(asked, result);
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  });
  section.append(el("p", { class: "lead", text: "Greedy decoding takes the likeliest token and never looks back. A beam search keeps several beginnings alive, ranks them by the sum of their log-probabilities, and lets go of those that fall behind." }), form, result);
  return {};
}

async function search(asked, result) {
  const width = asked.beam_width ?? 1;
  if (width < 2) throw new RangeError("A search needs a beam width of 2 or more.");
  const [found, greedy] = await Promise.all([
    call("/generate", { body: { ...asked, num_return: width, explain: true } }),
    call("/generate", { body: { prompt: asked.prompt, max_new_tokens: asked.max_new_tokens, temperature: 0, logprobs: { top: 0 } } }),
  ]);
  const trellis = new Trellis(found, greedy);
  const scrub = el("input", { type: "range", id: "beam-step", min: 1, max: found.beams.length, value: found.beams.length });
  const output = el("output", { for: "beam-step" });
  const set = (step) => {
    scrub.value = step;
    output.textContent = `${step} of ${found.beams.length}`;
    trellis.show(step);
  };
  scrub.addEventListener("input", () => set(Number(scrub.value)));
  result.replaceChildren(
    el("div", { class: "knob" }, el("label", { for: "beam-step", text: "Step" }), scrub, output),
    el("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "The search, step by step" }, trellis.element),
    el("p", { class: "note key" }, el("span", { class: "won", text: "the best text" }), el("span", { class: "alive", text: "alive at this step" }), el("span", { class: "gone", text: "let go" }), el("span", { class: "greedy", text: "always the likeliest" })),
    texts(found, greedy));
  await grow(found.beams.length, set, scrub);
}

/** Show one step after the other, unless motion is unwanted or someone takes the slider. */
async function grow(count, set, scrub) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return set(count);
  let taken = false;
  scrub.addEventListener("pointerdown", () => { taken = true; }, { once: true });
  scrub.addEventListener("keydown", () => { taken = true; }, { once: true });
  for (let step = 1; step <= count && !taken && scrub.isConnected; step += 1) {
    set(step);
    await new Promise((resolve) => setTimeout(resolve, STEP_MS));
  }
}

/** The returned texts, and greedy's. */
function texts(found, greedy) {
  const rows = found.choices.map((choice, index) => [index === 0 ? "won" : "", String(index + 1), choice.text, choice.logprob, choice.score, choice.finish_reason]);
  const sum = greedy.logprobs.reduce((total, entry) => total + entry.logprob, 0);
  rows.push(["greedy", "greedy", greedy.text, sum, null, greedy.finish_reason]);
  return el("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "The texts that were found" }, el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, ...["", "text", "log-probability", "score", "ended by"].map((name) => el("th", { scope: "col", text: name })))),
    el("tbody", {}, ...rows.map(([kind, name, text, logprob, score, end]) => el("tr", { class: kind }, el("th", { scope: "row", text: name }), el("td", { class: "words", text }), el("td", { class: "number", text: figure(logprob, 5) }), el("td", { class: "number", text: score === null ? "–" : figure(score, 5) }), el("td", { text: end }))))));
}

/** Beams as rows by rank, steps as columns, and lines from each beam to what it became. */
class Trellis {
  constructor(found, greedy) {
    this._steps = found.beams;
    this._lines = [];
    this._won = path(found.beams, found.choices[0]);
    const rows = Math.max(...found.beams.map((step) => step.length));
    const height = TOP + rows * ROW + ROW + 16;
    const width = LEFT + Math.max(found.beams.length, greedy.token_ids.length) * COLUMN + 20;
    const lines = (this._under = svg("g", {})), nodes = svg("g", {});
    this._groups = found.beams.map((step, at) => {
      const group = svg("g", {}, svg("text", { class: "tick", x: LEFT + at * COLUMN + COLUMN / 2, y: 14, text: at + 1 }));
      step.forEach((beam, rank) => this._add(at, rank, beam, lines, group));
      nodes.append(group);
      return group;
    });
    const greedyRow = svg("g", { class: "greedy" }, svg("text", { class: "tick begin", x: LEFT - 22, y: this._y(rows) + 12, text: "greedy" }));
    greedy.logprobs.forEach((entry, at) => greedyRow.append(...label(LEFT + at * COLUMN + COLUMN / 2, this._y(rows) + 12, entry.text, Math.exp(entry.logprob))));
    this.element = svg("svg", { class: "trellis", viewBox: `0 0 ${width} ${height}`, width: `${width / 16}rem`, height: `${height / 16}rem`, role: "img", "aria-label": `A search of ${this._steps.length} steps; the best text is ${found.choices[0].text}` },
      svg("text", { class: "tick begin", x: LEFT - 22, y: this._y(0) + 4, text: "prompt" }), lines, nodes, greedyRow);
  }

  _y(rank) {
    return TOP + rank * ROW + 12;
  }

  _add(at, rank, beam, lines, group) {
    const x = LEFT + at * COLUMN;
    const before = at === 0 ? null : this._steps[at - 1][beam.parent];
    const probability = Math.exp(beam.logprob - (before?.logprob ?? 0));
    const from = at === 0 ? this._y(0) : this._y(beam.parent);
    const line = svg("path", { d: `M${x - 14} ${from}C${x + 10} ${from} ${x - 6} ${this._y(rank)} ${x + 18} ${this._y(rank)}`, "stroke-width": (1 + 4 * probability).toFixed(2) });
    const node = svg("g", { class: "node" }, svg("title", { text: `${visible(beam.text)} · ${percent(probability)} after its beginning · sum ${figure(beam.logprob, 5)}${beam.ending ? ` · ended by ${beam.ending}` : ""}` }), ...label(x + COLUMN / 2, this._y(rank), beam.text, probability, beam.ending));
    lines.append(line);
    group.append(node);
    this._lines.push({ at, rank, beam, line, node, won: this._won.get(at) === rank });
  }

  /** As the search stood after `step` steps. */
  show(step) {
    const alive = aliveAt(this._steps, step);
    this._groups.forEach((group, at) => group.setAttribute("visibility", at < step ? "visible" : "hidden"));
    for (const { at, rank, beam, line, node, won } of this._lines) {
      const state = won && step === this._steps.length ? "won" : alive.has(`${at} ${rank}`) || (beam.ending && at < step) ? "alive" : "gone";
      line.setAttribute("visibility", at < step ? "visible" : "hidden");
      line.setAttribute("class", state);
      node.setAttribute("class", `node ${state}`);
    }
    // What went on lies over what was let go.
    for (const state of ["alive", "won"]) this._under.append(...this._under.querySelectorAll(`.${state}`));
  }
}

function label(x, y, text, probability, ending) {
  const shown = visible(text);
  return [svg("text", { class: "token", x, y: y + 1, text: (shown.length > 11 ? `${shown.slice(0, 10)}…` : shown) + (ending ? " ■" : "") }), svg("text", { class: "share", x, y: y + 15, text: percent(probability) })];
}

/** Which beams the live ones of this step have come from, as "step rank". */
function aliveAt(steps, step) {
  const alive = new Set();
  steps[step - 1].forEach((beam, rank) => {
    for (let [at, place] = [step - 1, rank]; at >= 0 && !alive.has(`${at} ${place}`); [place, at] = [steps[at][place].parent, at - 1]) alive.add(`${at} ${place}`);
  });
  return alive;
}

/** The places of a text's beams: rank by step. */
function path(steps, { token_ids, logprob }) {
  const last = token_ids.length - 1;
  for (let [rank, beams] = [0, steps[last] ?? []]; rank < beams.length; rank += 1) {
    if (beams[rank].token_id !== token_ids[last] || beams[rank].logprob !== logprob) continue;
    const places = new Map();
    for (let [at, place] = [last, rank]; at >= 0; [place, at] = [steps[at][place].parent, at - 1]) places.set(at, place);
    return places;
  }
  return new Map();
}
