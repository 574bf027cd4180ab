// Inside a token: the logits it was drawn from, every stage of its choice, and what other settings would have made of them.
// Knows one token and its context; the stages are computed here, from the server's logits. Always: with the settings of the
// request the stages are those of the server's own `explain`, which "Check" compares; sliders wait for no server.

import { call } from "./api.js";
import { drawLine, entropyCurve, matrix } from "./bars.js";
import { byId, el, figure, percent, visible } from "./dom.js";
import { canFollow, contextOf, difference, explainAt, explanationOf, settingsOf } from "./explaining.js";
import { words } from "./form.js";
import { entropies, entropyOf, ranking, rowFrom } from "./stages.js";

const NAMED = 40;
const LISTED = 10;
const KEPT_ROWS = 24;
const KNOBS = { temperature: [0, 2, 0.01], top_k: [0, 100, 1], top_p: [0.01, 1, 0.01], min_p: [0, 0.5, 0.005] };
const CHUNK = 4;
const CURVE = Array.from({ length: 40 }, (_, index) => (index + 1) / 20);

export class Inspector {
  /** `onchoose(index, candidate)` where another token is wanted; `onstep(index)` where another one is to be looked at. */
  constructor(panel, onchoose, onstep) {
    Object.assign(this, { _panel: panel, _onchoose: onchoose, _onstep: onstep, _rows: new Map(), _turn: 0 });
  }

  clear() {
    this._asking?.abort();
    this._rows.clear();
    this._turn += 1;
    this._panel.replaceChildren(
      el("p", {
        class: "empty",
        text: "Choose a token of the text: click it, or walk with the arrow keys and press Enter.",
      }),
    );
  }

  /** `at`: {request, parameters, tokens, index, sample, chooses}. */
  async show(at) {
    const turn = (this._turn += 1);
    this._asking?.abort();
    this._panel.replaceChildren(this._head(at), el("p", { class: "empty", text: "Reading the logits…" }));
    try {
      const found = await this._row(at);
      if (turn !== this._turn) return;
      this._at = { ...at, ...found, settings: settingsOf(at.parameters) };
      if (canFollow(at)) this._render();
      else await this._renderServers(turn);
    } catch (error) {
      if (turn === this._turn)
        this._panel.replaceChildren(this._head(at), el("p", { class: "problem", role: "alert", text: error.message }));
    }
  }

  async _row(at) {
    const place = `${at.sample}/${at.index}`;
    const held = this._rows.get(place);
    if (held) return held;
    const answer = await call("/logits", { body: { ...contextOf(at), top: NAMED } });
    const row = rowFrom(answer.logits);
    const texts = new Map(answer.top.map((token) => [token.token_id, token]));
    const found = { row, order: ranking(row), texts };
    if (this._rows.size >= KEPT_ROWS) this._rows.delete(this._rows.keys().next().value);
    this._rows.set(place, found);
    return found;
  }

  _head({ tokens, index }) {
    const token = tokens[index];
    const step = (by, label, sign) =>
      el("button", {
        type: "button",
        class: "quiet",
        "aria-label": label,
        text: sign,
        disabled: !tokens[index + by],
        onclick: () => this._onstep(index + by),
      });
    return el(
      "header",
      { class: "token-head" },
      step(-1, "Token before", "←"),
      el(
        "div",
        {},
        el("strong", { class: "token-name", text: visible(token.shown || token.text || "") }),
        el("span", { class: "note", text: `token ${index + 1} of ${tokens.length} · id ${token.id}` }),
      ),
      step(1, "Token after", "→"),
    );
  }

  _render() {
    const at = this._at;
    this._live = el("div", { class: "live" });
    this._said = el("p", { class: "said", "aria-live": "polite" });
    this._curve = el("div");
    this._panel.replaceChildren(this._head(at), this._live, this._knobs(), this._said, this._curve, this._check());
    this._points = null;
    this._update();
    this._plot(at);
  }

  /** The curve, a few points at a time, so that a large vocabulary holds nobody up. */
  async _plot(at) {
    const points = [];
    for (let first = 0; first < CURVE.length; first += CHUNK) {
      await new Promise((resolve) => setTimeout(resolve, 0));
      if (this._at !== at) return;
      const temperatures = CURVE.slice(first, first + CHUNK);
      points.push(...entropies(at.base.row, temperatures).map((nats, index) => [temperatures[index], nats / Math.LN2]));
    }
    this._points = points;
    this._drawCurve();
  }

  /** Bars, line and figures anew for the settings as they are. */
  _update() {
    const at = this._at;
    const told = explainAt(at, at.settings);
    at.base ??= told;
    const token = at.tokens[at.index];
    const last = told.stages.at(-1);
    const candidates = this._candidates(told, [token.id, told.chosen]);
    const choose = at.chooses ? (candidate) => this._onchoose(at.index, candidate) : null;
    this._live.replaceChildren(
      this._facts(told, token),
      matrix(told.stages, at.settings, candidates, told.chosen, choose),
      told.uniform === null
        ? el("p", { class: "note", text: "At temperature 0 nothing is drawn: the likeliest is taken." })
        : drawLine(last, told.uniform, told.chosen, (id) => this._text(id)),
    );
    const isTaken = told.chosen === token.id;
    this._said.textContent = isTaken
      ? "With these settings this token is taken."
      : `With these settings ${token.forced ? "the draw takes" : "the same number takes"} “${visible(this._text(told.chosen))}”.`;
    this._told = told;
    this._drawCurve();
  }

  _drawCurve() {
    if (!this._points) return;
    const { temperature } = this._at.settings;
    const bits = temperature === 0 ? 0 : entropies(this._told.row, [temperature])[0] / Math.LN2;
    this._curve.replaceChildren(entropyCurve(this._points, [temperature, bits]));
  }

  _facts(told, token) {
    const model = told.stages[0];
    const p = model.weights[token.id] / model.total;
    const left = told.uniform === null ? 0 : entropyOf(told.stages.at(-1).weights) / Math.LN2;
    const facts = [
      ["Probability", percent(p)],
      ["Surprise", `${figure(-Math.log2(p))} bits`],
      ["Entropy", `${figure(told.entropy / Math.LN2)} bits`],
      ["… of what is left", `${figure(Math.max(0, left))} bits`],
    ];
    return el(
      "dl",
      { class: "facts" },
      ...facts.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value }))),
    );
  }

  _candidates(told, also) {
    const ids = [...told.order.slice(0, LISTED)];
    for (const id of also) if (!ids.includes(id)) ids.push(id);
    return ids.map((id) => ({ ...this._at.texts.get(id), id, text: this._text(id) }));
  }

  _text(id) {
    const { texts, tokens, index } = this._at;
    return texts.get(id)?.text ?? (tokens[index].id === id ? tokens[index].shown : `#${id}`);
  }

  _knobs() {
    const { settings } = this._at;
    const rows = Object.entries(KNOBS).map(([name, [minimum, maximum, step]]) => {
      const output = el("output", { for: `knob-${name}`, text: figure(settings[name]) });
      const input = el("input", {
        id: `knob-${name}`,
        type: "range",
        min: minimum,
        max: Math.max(maximum, settings[name]),
        step,
        value: settings[name],
      });
      input.addEventListener("input", () => {
        settings[name] = Number(input.value);
        output.textContent = name === "top_k" && settings[name] === 0 ? "off" : figure(settings[name]);
        reset.hidden = false;
        this._update();
      });
      return el("div", { class: "knob" }, el("label", { for: `knob-${name}`, text: words(name) }), input, output);
    });
    const reset = el("button", {
      type: "button",
      class: "quiet",
      hidden: true,
      text: "As it was asked",
      onclick: () => {
        this._at.settings = settingsOf(this._at.parameters);
        this._render();
        byId("knob-temperature").focus();
      },
    });
    return el("fieldset", { class: "knobs" }, el("legend", { text: "What if" }), ...rows, reset);
  }

  _check() {
    const result = el("p", { class: "note", role: "status" });
    const button = el("button", {
      type: "button",
      text: "Check against the server's explanation",
      onclick: async () => {
        result.textContent = "Asking…";
        try {
          result.textContent = difference(
            explainAt(this._at, settingsOf(this._at.parameters)),
            await explanationOf(this._at),
          );
        } catch (error) {
          result.textContent = error.message;
        }
      },
    });
    return el("div", { class: "check" }, button, result);
  }

  /** Where the page cannot follow the choice itself, the server's own explanation, as it is. */
  async _renderServers(turn) {
    const at = this._at;
    this._asking = new AbortController();
    const told = await explanationOf(at, this._asking);
    if (turn !== this._turn) return;
    for (const stage of told.stages)
      for (const entry of stage.top) at.texts.set(entry.id, { token_id: entry.id, text: entry.text });
    const ids = [...new Set([...told.stages.at(-1).top, ...told.stages[0].top].map((entry) => entry.id))].slice(
      0,
      LISTED + 2,
    );
    const choose = at.chooses && !at.parameters.constraint ? (candidate) => this._onchoose(at.index, candidate) : null;
    this._panel.replaceChildren(
      this._head(at),
      el("p", {
        class: "note",
        text: `Entropy ${figure(told.entropy / Math.LN2)} bits${told.uniform === null ? "" : ` · u = ${told.uniform.toFixed(4)}`}`,
      }),
      matrix(
        told.stages,
        at.settings,
        ids.map((id) => ({ ...at.texts.get(id), id, text: this._text(id) })),
        at.tokens[at.index].id,
        choose,
      ),
      el("p", {
        class: "note",
        text: "A constraint, penalties or a least length take part in this choice, which the server alone can follow: so there are no sliders.",
      }),
    );
  }
}
