// A beam search as a drawing: ranks by rows, steps by columns, and lines from each beam to what it became.
// Knows the `beams` of an explained answer and elements; asks no server. Always: a line is as thick as its step was likely.

import { figure, percent, svg, visible } from "./dom.js";

const [COLUMN, ROW, LEFT, TOP] = [104, 50, 92, 30];

/** Beams as rows by rank, steps as columns, and lines from each beam to what it became. */
export class Trellis {
  constructor(found, greedy) {
    this._steps = found.beams;
    this._lines = [];
    this._won = path(found.beams, found.choices[0]);
    const rows = Math.max(...found.beams.map((step) => step.length));
    const height = TOP + rows * ROW + ROW + 16;
    const width = LEFT + Math.max(found.beams.length, greedy.token_ids.length) * COLUMN + 20;
    const lines = (this._under = svg("g", {})),
      nodes = svg("g", {});
    this._groups = found.beams.map((step, at) => {
      const group = svg(
        "g",
        {},
        svg("text", { class: "tick", x: LEFT + at * COLUMN + COLUMN / 2, y: 14, text: at + 1 }),
      );
      step.forEach((beam, rank) => this._add(at, rank, beam, lines, group));
      nodes.append(group);
      return group;
    });
    const greedyRow = svg(
      "g",
      { class: "greedy" },
      svg("text", { class: "tick begin", x: LEFT - 22, y: this._y(rows) + 12, text: "greedy" }),
    );
    greedy.logprobs.forEach((entry, at) =>
      greedyRow.append(
        ...label(LEFT + at * COLUMN + COLUMN / 2, this._y(rows) + 12, entry.text, Math.exp(entry.logprob)),
      ),
    );
    this.element = svg(
      "svg",
      {
        class: "trellis",
        viewBox: `0 0 ${width} ${height}`,
        width: `${width / 16}rem`,
        height: `${height / 16}rem`,
        role: "img",
        "aria-label": `A search of ${this._steps.length} steps; the best text is ${found.choices[0].text}`,
      },
      svg("text", { class: "tick begin", x: LEFT - 22, y: this._y(0) + 4, text: "prompt" }),
      lines,
      nodes,
      greedyRow,
    );
  }

  _y(rank) {
    return TOP + rank * ROW + 12;
  }

  _add(at, rank, beam, lines, group) {
    const x = LEFT + at * COLUMN;
    const before = at === 0 ? null : this._steps[at - 1][beam.parent];
    const probability = Math.exp(beam.logprob - (before?.logprob ?? 0));
    const from = at === 0 ? this._y(0) : this._y(beam.parent);
    const line = svg("path", {
      d: `M${x - 14} ${from}C${x + 10} ${from} ${x - 6} ${this._y(rank)} ${x + 18} ${this._y(rank)}`,
      "stroke-width": (1 + 4 * probability).toFixed(2),
    });
    const node = svg(
      "g",
      { class: "node" },
      svg("title", {
        text: `${visible(beam.text)} · ${percent(probability)} after its beginning · sum ${figure(beam.logprob, 5)}${beam.ending ? ` · ended by ${beam.ending}` : ""}`,
      }),
      ...label(x + COLUMN / 2, this._y(rank), beam.text, probability, beam.ending),
    );
    lines.append(line);
    group.append(node);
    this._lines.push({ at, rank, beam, line, node, won: this._won.get(at) === rank });
  }

  /** As the search stood after `step` steps. */
  show(step) {
    const alive = aliveAt(this._steps, step);
    this._groups.forEach((group, at) => group.setAttribute("visibility", at < step ? "visible" : "hidden"));
    for (const { at, rank, beam, line, node, won } of this._lines) {
      const state =
        won && step === this._steps.length
          ? "won"
          : alive.has(`${at} ${rank}`) || (beam.ending && at < step)
            ? "alive"
            : "gone";
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
  return [
    svg("text", {
      class: "token",
      x,
      y: y + 1,
      text: (shown.length > 11 ? `${shown.slice(0, 10)}…` : shown) + (ending ? " ■" : ""),
    }),
    svg("text", { class: "share", x, y: y + 15, text: percent(probability) }),
  ];
}

/** Which beams the live ones of this step have come from, as "step rank". */
function aliveAt(steps, step) {
  const alive = new Set();
  steps[step - 1].forEach((beam, rank) => {
    for (
      let [at, place] = [step - 1, rank];
      at >= 0 && !alive.has(`${at} ${place}`);
      [place, at] = [steps[at][place].parent, at - 1]
    )
      alive.add(`${at} ${place}`);
  });
  return alive;
}

/** The places of a text's beams: rank by step. */
function path(steps, { token_ids, logprob }) {
  const last = token_ids.length - 1;
  for (let [rank, beams] = [0, steps[last] ?? []]; rank < beams.length; rank += 1) {
    if (beams[rank].token_id !== token_ids[last] || beams[rank].logprob !== logprob) continue;
    const places = new Map();
    for (let [at, place] = [last, rank]; at >= 0; [place, at] = [steps[at][place].parent, at - 1])
      places.set(at, place);
    return places;
  }
  return new Map();
}
