// How a choice looks: candidates as bars, a column for each stage; the line on which the draw fell; entropy by temperature.
// Knows stages as `stages.js` or the server gives them. Always: one scale for all bars of a table, which begins at 0.

import { el, figure, percent, svg, visible } from "./dom.js";

const NAMES = { temperature: "τ", top_k: "top-k", top_p: "top-p", min_p: "min-p" };
const LEFT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const SCALES = [0.05, 0.1, 0.25, 0.5, 1];
const NARROWEST = 0.0015;
/** Of the whole line; narrower candidates are left as its ground. */

/** A table: `candidates` [{id, text}] by rows, `stages` by columns. `onchoose` is told a candidate. */
export function matrix(stages, settings, candidates, chosen, onchoose) {
  const head = el(
    "tr",
    {},
    el("th", { scope: "col", text: "token" }),
    ...stages.map((stage) => stageHead(stage, settings)),
  );
  const most = Math.max(...stages.flatMap((stage) => candidates.map(({ id }) => probabilityOf(stage, id) ?? 0)));
  const scale = SCALES.find((bound) => bound >= most) ?? 1;
  const rows = candidates.map((candidate) => {
    const name = el(
      "button",
      {
        type: "button",
        class: "candidate",
        title: `Go on with this token (id ${candidate.id})`,
        onclick: () => onchoose(candidate),
      },
      visible(candidate.text),
    );
    name.disabled = onchoose === null;
    return el(
      "tr",
      { class: candidate.id === chosen ? "chosen" : null, "data-id": candidate.id },
      el("th", { scope: "row" }, name),
      ...stages.map((stage) => cell(probabilityOf(stage, candidate.id), scale)),
    );
  });
  return el(
    "table",
    { class: "matrix" },
    el("caption", { class: "unseen", text: "Probability of each candidate after each stage" }),
    el("thead", {}, head),
    el("tbody", {}, ...rows),
  );
}

function stageHead(stage, settings) {
  const dropped = stage.mass < 1 ? `${stage.mass > 0.995 ? "> 99" : Math.round(100 * stage.mass)} % kept` : "";
  const value = settings[stage.name] === undefined ? "" : ` ${figure(settings[stage.name])}`;
  return el(
    "th",
    { scope: "col", title: stage.name.replace("_", "-") },
    `${NAMES[stage.name] ?? stage.name}${value}`,
    el("small", { text: `${LEFT.format(stage.candidates)} left` }),
    el("small", { text: dropped }),
  );
}

function probabilityOf(stage, id) {
  if (stage.weights) return stage.weights[id] / stage.total;
  return stage.top.find((entry) => entry.id === id)?.probability ?? (stage.candidates > stage.top.length ? null : 0);
}

function cell(probability, scale) {
  if (probability === null) return el("td", { class: "unknown" }, el("span", { class: "unseen", text: "not told" }));
  const bar = el("span", { class: "bar" });
  bar.style.width = `${(100 * probability) / scale}%`;
  return el(
    "td",
    { class: probability === 0 ? "out" : null },
    el("span", { class: "track" }, bar),
    el("span", { class: "value", text: probability === 0 ? "out" : percent(probability) }),
  );
}

/** The candidates of the last stage one beside the other in the order of ids, and where the uniform number fell. */
export function drawLine(stage, uniform, chosen, textOf) {
  const line = el("div", { class: "line" });
  let sum = 0;
  for (let id = 0; id < stage.weights.length; id += 1) {
    const share = stage.weights[id] / stage.total;
    if (share >= NARROWEST || id === chosen) line.append(segment(id, sum, share, id === chosen, textOf(id)));
    sum += share;
  }
  const needle = el("span", { class: "needle" }, el("span", { text: `u = ${uniform.toFixed(4)}` }));
  needle.style.left = `${100 * uniform}%`;
  needle.classList.toggle("late", uniform > 0.7);
  const spoken = `The number drawn, ${uniform.toFixed(6)}, fell on ${visible(textOf(chosen))}.`;
  return el(
    "figure",
    { class: "draw" },
    el("div", { class: "line-box", role: "img", "aria-label": spoken }, line, needle),
    el("figcaption", {
      class: "note",
      text: "Every token that is left, in the order of ids, as wide as it is likely. The one under the number is taken.",
    }),
  );
}

function segment(id, from, share, isChosen, text) {
  const part = el("span", {
    class: isChosen ? "segment chosen" : "segment",
    title: `${visible(text)} · ${percent(share)} · id ${id}`,
    text: share > 0.035 ? visible(text) : "",
  });
  part.style.left = `${100 * from}%`;
  part.style.width = `${100 * share}%`;
  return part;
}

/** Entropy in bits over temperature, with a mark at `now`. `points`: [[τ, bits]]. */
export function entropyCurve(points, now) {
  const [width, height, left, bottom] = [320, 110, 30, 18];
  const most = Math.max(1, Math.ceil(Math.max(...points.map(([, bits]) => bits))));
  const x = (temperature) => left + ((width - left - 8) * temperature) / 2;
  const y = (bits) => 8 + (height - bottom - 8) * (1 - bits / most);
  const path = points
    .map(([temperature, bits], index) => `${index ? "L" : "M"}${x(temperature).toFixed(1)} ${y(bits).toFixed(1)}`)
    .join("");
  const ticks = [0, 1, 2].map((temperature) =>
    svg("text", { x: x(temperature), y: height - 4, "text-anchor": "middle", text: temperature }),
  );
  const levels = [0, most].map((bits) =>
    svg("text", { x: left - 6, y: y(bits) + 4, "text-anchor": "end", text: bits }),
  );
  return el(
    "figure",
    { class: "curve" },
    svg(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        role: "img",
        "aria-label": `Entropy is ${figure(now[1])} bits at temperature ${now[0]}`,
      },
      svg("path", { class: "axis", d: `M${left} 8V${height - bottom}H${width - 8}` }),
      ...ticks,
      ...levels,
      svg("path", { class: "graph", d: path }),
      svg("circle", { cx: x(now[0]), cy: y(now[1]), r: 4 }),
    ),
    el("figcaption", { class: "note", text: "Entropy in bits, by temperature" }),
  );
}
