// A beam search, step by step: every beam at its rank, where it came from, where it was let go, and which one won.
// Knows the `beams` of an explained answer. Always: what is drawn was searched by the server; the path of always taking the
// likeliest stands below, asked for beside it.

import { call } from "./api.js";
import { el, figure, plainTable } from "./dom.js";
import { fieldOf, rangeOf, read } from "./fields.js";
import { Trellis } from "./trellis.js";

const STEP_MS = 90;
const CONTROLS = [
  ["beam_width", "4"],
  ["max_new_tokens", "12"],
  ["length_penalty", ""],
];

export function view(section, { document: api }) {
  const fields = CONTROLS.map(([name, initial]) => ({
    field: fieldOf(api, name),
    input: el("input", {
      id: `beam-${name}`,
      class: "number",
      inputmode: "decimal",
      value: initial,
      placeholder: "0",
      "aria-describedby": `beam-${name}-note`,
    }),
  }));
  const prompt = el("textarea", { id: "beam-prompt", class: "prose", rows: 2 });
  prompt.value = "The capital of France is";
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const result = el("div", { class: "search" });
  const form = el(
    "form",
    { class: "ask" },
    el("label", { class: "unseen", for: "beam-prompt", text: "Prompt" }),
    prompt,
    el(
      "div",
      { class: "ask-fields" },
      ...fields.map(({ field, input }) =>
        el(
          "div",
          {},
          el("label", { for: input.id, text: field.name.replace(/_/g, " ") }),
          input,
          el("small", { class: "note", id: `${input.id}-note`, text: rangeOf(field) }),
        ),
      ),
      el("button", { class: "primary", type: "submit", text: "Search" }),
    ),
    problem,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.hidden = true;
    try {
      const asked = {
        prompt: prompt.value,
        ...Object.fromEntries(fields.map(({ field, input }) => [field.name, read(field, input.value)])),
      };
      await search(asked, result);
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  });
  section.append(
    el("p", {
      class: "lead",
      text: "Greedy decoding takes the likeliest token and never looks back. A beam search keeps several beginnings alive, ranks them by the sum of their log-probabilities, and lets go of those that fall behind.",
    }),
    form,
    result,
  );
  return {};
}

async function search(asked, result) {
  const width = asked.beam_width ?? 1;
  if (width < 2) throw new RangeError("A search needs a beam width of 2 or more.");
  const [found, greedy] = await Promise.all([
    call("/generate", { body: { ...asked, num_return: width, explain: true } }),
    call("/generate", {
      body: { prompt: asked.prompt, max_new_tokens: asked.max_new_tokens, temperature: 0, logprobs: { top: 0 } },
    }),
  ]);
  const trellis = new Trellis(found, greedy);
  const scrub = el("input", {
    type: "range",
    id: "beam-step",
    min: 1,
    max: found.beams.length,
    value: found.beams.length,
  });
  const output = el("output", { for: "beam-step" });
  const set = (step) => {
    scrub.value = step;
    output.textContent = `${step} of ${found.beams.length}`;
    trellis.show(step);
  };
  scrub.addEventListener("input", () => set(Number(scrub.value)));
  result.replaceChildren(
    el("div", { class: "knob" }, el("label", { for: "beam-step", text: "Step" }), scrub, output),
    el(
      "div",
      { class: "scroller", tabindex: 0, role: "region", "aria-label": "The search, step by step" },
      trellis.element,
    ),
    el(
      "p",
      { class: "note key" },
      el("span", { class: "won", text: "the best text" }),
      el("span", { class: "alive", text: "alive at this step" }),
      el("span", { class: "gone", text: "let go" }),
      el("span", { class: "greedy", text: "always the likeliest" }),
    ),
    texts(found, greedy),
  );
  await grow(found.beams.length, set, scrub);
}

/** Show one step after the other, unless motion is unwanted or someone takes the slider. */
async function grow(count, set, scrub) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return set(count);
  let taken = false;
  scrub.addEventListener(
    "pointerdown",
    () => {
      taken = true;
    },
    { once: true },
  );
  scrub.addEventListener(
    "keydown",
    () => {
      taken = true;
    },
    { once: true },
  );
  for (let step = 1; step <= count && !taken && scrub.isConnected; step += 1) {
    set(step);
    await new Promise((resolve) => setTimeout(resolve, STEP_MS));
  }
}

/** The returned texts, and greedy's. */
function texts(found, greedy) {
  const rows = found.choices.map((choice, index) => [
    index === 0 ? "won" : "",
    String(index + 1),
    choice.text,
    choice.logprob,
    choice.score,
    choice.finish_reason,
  ]);
  const sum = greedy.logprobs.reduce((total, entry) => total + entry.logprob, 0);
  rows.push(["greedy", "greedy", greedy.text, sum, null, greedy.finish_reason]);
  return plainTable(
    "The texts that were found",
    ["", "text", "log-probability", "score", "ended by"],
    rows.map(([kind, name, text, logprob, score, end]) =>
      el(
        "tr",
        { class: kind },
        el("th", { scope: "row", text: name }),
        el("td", { class: "words", text }),
        el("td", { class: "number", text: figure(logprob, 5) }),
        el("td", { class: "number", text: score === null ? "–" : figure(score, 5) }),
        el("td", { text: end }),
      ),
    ),
  );
}
