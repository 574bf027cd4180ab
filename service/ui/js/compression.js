// Compressed models beside their source: size against quality, one prompt answered by two, and why pruning may backfire.
// Knows what `/info` tells of each served model. Always: a figure that was not measured is not shown.

import { call } from "./api.js";
import { bytes, el, figure, percent, plainTable } from "./dom.js";
import { frontierOf } from "./frontier.js";
import { byMagnitude, bySaliency, bySurgery, deviation, trial, WIDTH } from "./pruning.js";

const WAYS = [
  ["by magnitude", byMagnitude],
  ["by saliency alone", bySaliency],
  ["by surgery", bySurgery],
];
const SERVE = "tane compress --recipe gptq-4bit-g64 --out small && tane serve --variant small=./small";

export function view(section, { info }) {
  section.append(
    el("p", {
      class: "lead",
      text: "A compressed model is another model: smaller, often faster, and now and then of another opinion. Here it stands beside the one that it was made from.",
    }),
    el("h2", { text: "What is served" }),
    variants(info.models),
    frontier(info.models),
    el("h2", { text: "One prompt, two models" }),
    beside(info.models),
    el("h2", { text: "When pruning by saliency backfires" }),
    correlation(),
  );
  return {};
}

function variants(models) {
  const rows = models.map((model) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", text: model.name }),
      el("td", { text: model.recipe ?? "as published" }),
      el("td", { class: "number", text: bytes(model.bytes) }),
      el("td", { class: "number", text: figure(model.bits_per_weight) }),
      el("td", { class: "number", text: measured(model, "perplexity") }),
      el("td", { class: "number", text: measured(model, "tokens_per_second") }),
    ),
  );
  return plainTable(
    "Served models",
    ["model", "recipe", "weights", "bits per weight", "perplexity", "tokens/s"],
    rows,
  );
}

function measured(model, name) {
  const value = model.evaluation?.[name];
  return typeof value === "number" ? figure(value, 4) : "–";
}

/** Size and speed against perplexity, of the models of which `tane eval --save` has kept it. */
function frontier(models) {
  const known = models.filter((model) => typeof model.evaluation?.perplexity === "number");
  if (known.length < 2)
    return el("p", {
      class: "note",
      text: "Perplexity is shown for models on which tane eval --save was run; with two of them they are plotted here.",
    });
  return el(
    "div",
    {},
    frontierOf(known),
    el("p", { class: "note", text: "Lower is better; smaller is to the left, faster to the right." }),
  );
}

function beside(models) {
  if (models.length < 2)
    return el(
      "div",
      {},
      el("p", { text: "One model is served. Serve a compressed one beside it to compare them:" }),
      el("pre", { class: "snippet", tabindex: 0, "aria-label": "Commands", text: SERVE }),
    );
  const choices = [0, 1].map((index) => {
    const select = el(
      "select",
      { id: `variant-${index}` },
      ...models.map((model) => el("option", { value: model.name, text: model.name })),
    );
    select.value = models[index].name;
    return el("div", {}, el("label", { for: `variant-${index}`, text: index === 0 ? "first" : "second" }), select);
  });
  const prompt = el("textarea", { id: "variant-prompt", class: "prose", rows: 2 });
  prompt.value = "The three primary colours are";
  const result = el("div");
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const form = el(
    "form",
    { class: "ask" },
    el("label", { class: "unseen", for: "variant-prompt", text: "Prompt" }),
    prompt,
    el("div", { class: "ask-fields" }, ...choices, el("button", { type: "submit", class: "primary", text: "Compare" })),
    problem,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.hidden = true;
    try {
      const names = choices.map((choice) => choice.querySelector("select").value);
      const answers = await Promise.all(
        names.map((model) =>
          call("/generate", { body: { prompt: prompt.value, model, temperature: 0, max_new_tokens: 64 } }),
        ),
      );
      result.replaceChildren(pair(names, answers));
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  });
  return el("div", {}, form, result);
}

/** Two texts, with the first word of each that differs marked. */
function pair(names, answers) {
  const [first, second] = answers.map((answer) => answer.text);
  let same = 0;
  while (same < first.length && first[same] === second[same]) same += 1;
  const isEqual = first === second;
  if (!isEqual) while (same > 0 && /\S/.test(first[same - 1])) same -= 1;
  const said = isEqual ? "Both write the same." : `They part after ${same} characters.`;
  return el(
    "div",
    {},
    el("p", { class: "note", role: "status", text: said }),
    el(
      "div",
      { class: "pair" },
      ...answers.map((answer, index) => {
        const word = isEqual ? "" : (/^\s*\S*/.exec(answer.text.slice(same)) ?? [""])[0];
        return el(
          "article",
          {},
          el("h3", { text: `${names[index]} · ${figure(answer.timings.tokens_per_second ?? 0)} tokens/s` }),
          el(
            "p",
            { class: "prose" },
            answer.text.slice(0, same),
            word ? el("mark", { text: word }) : null,
            answer.text.slice(same + word.length),
          ),
        );
      }),
    ),
  );
}

/** The study of correlation with sliders: computed here, since it needs no model. */
function correlation() {
  const state = { shared: 0.9, count: 32, seed: 4 };
  const ways = el("div", { class: "ways" });
  const said = el("p", { class: "note", "aria-live": "polite" });
  let row = trial(state.seed, state.shared);
  const draw = () => {
    const pruned = WAYS.map(([, way]) => way(row, state.count));
    const moved = pruned.map((weights) => deviation(row, weights));
    const most = Math.max(...moved, 1e-9);
    ways.replaceChildren(
      ...WAYS.flatMap(([name], index) => {
        const bar = el("span", { class: "bar" });
        bar.style.width = `${(100 * moved[index]) / most}%`;
        return [
          el("span", { text: name }),
          el("span", { class: "track" }, bar),
          el("span", { class: "number", text: percent(moved[index]) }),
          weights(pruned[index]),
          el("span"),
        ];
      }),
    );
    said.textContent =
      moved[1] > moved[0]
        ? "Saliency alone does worse than magnitude here: it counts on the others to make up for what goes, and they were not told."
        : "Saliency alone does no worse than magnitude here.";
  };
  const knob = (name, label, minimum, maximum, step, renew) => {
    const output = el("output", { for: `study-${name}`, text: String(state[name]) });
    const input = el("input", {
      type: "range",
      id: `study-${name}`,
      min: minimum,
      max: maximum,
      step,
      value: state[name],
    });
    input.addEventListener("input", () => {
      state[name] = Number(input.value);
      output.textContent = input.value;
      if (renew) row = trial(state.seed, state.shared);
      draw();
    });
    return el("div", { class: "knob" }, el("label", { for: `study-${name}`, text: label }), input, output);
  };
  const again = el("button", {
    type: "button",
    text: "Another row",
    onclick: () => {
      state.seed += 1;
      row = trial(state.seed, state.shared);
      draw();
    },
  });
  draw();
  return el(
    "div",
    { class: "study" },
    el("p", {
      class: "note",
      text: `${WIDTH} weights read inputs that share a part c of what moves them. Some weights go; the bars say how far the output moved, as a share of itself.`,
    }),
    knob("shared", "shared part c", 0, 0.98, 0.02, true),
    knob("count", "weights that go", 1, WIDTH - 1, 1, false),
    again,
    ways,
    said,
  );
}

function weights(pruned) {
  const most = Math.max(...pruned.map(Math.abs), 1e-9);
  return el(
    "span",
    { class: "weights", "aria-hidden": "true" },
    ...Array.from(pruned, (weight) => {
      const bar = el("span", { class: weight === 0 ? "out" : null });
      bar.style.height = `${(100 * Math.abs(weight)) / most}%`;
      return bar;
    }),
  );
}
