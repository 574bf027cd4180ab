// What the server is doing now, from the same metrics that Prometheus reads. Always: asked for only while it is looked at.

import { callText } from "./api.js";
import { bytes, el, figure, percent, svg } from "./dom.js";
import { quantile, samplesOf, total } from "./exposition.js";
import { Polling } from "./polling.js";

const EVERY_MS = 1000;
const SHOWN = 120;
const QUANTILES_OVER = 60;
/** Scrapes. */
const STATES = ["leased", "idle", "free"];
const STATE_NOTES = { leased: "in use", idle: "kept for whoever comes back", free: "free" };

export function view(section) {
  const numbers = new Numbers();
  section.append(
    el("p", {
      class: "lead",
      text: "What this server does at this moment, for all who use it. The same figures are at /metrics, with their history in Grafana.",
    }),
    numbers.element,
  );
  return numbers;
}

class Numbers {
  constructor() {
    this._scrapes = [];
    this._rates = [];
    this._polling = new Polling(() => this._look(), EVERY_MS);
    this.element = el("div", { class: "numbers" }, el("p", { class: "empty", text: "Reading…" }));
  }

  enter() {
    this._scrapes = [];
    this._polling.enter();
  }

  leave() {
    this._polling.leave();
  }

  async _look() {
    try {
      this._take({ at: performance.now(), samples: samplesOf(await callText("/metrics")) });
      return true;
    } catch (error) {
      this.element.replaceChildren(el("p", { class: "problem", role: "alert", text: error.message }));
      return error.status !== 401;
    }
  }

  _take(scrape) {
    const last = this._scrapes.at(-1);
    this._scrapes = [...this._scrapes, scrape].slice(-QUANTILES_OVER);
    if (last) {
      const made =
        total(scrape.samples, "tane_generated_tokens_total") - total(last.samples, "tane_generated_tokens_total");
      this._rates = [...this._rates, Math.max(0, (1000 * made) / (scrape.at - last.at))].slice(-SHOWN);
    }
    this._draw(scrape.samples, this._scrapes[0].samples);
  }

  _draw(now, before) {
    const sum = (name, labels) => total(now, name, labels);
    const asked = sum("tane_prefix_cache_queried_tokens_total");
    const drafted = sum("tane_speculation_drafted_tokens_total");
    this.element.replaceChildren(
      card(
        "Tokens per second",
        figure(this._rates.at(-1) ?? sum("tane_tokens_per_second")),
        sparkline(this._rates),
        "wide",
      ),
      latency("To the first token", "tane_time_to_first_token_seconds", before, now),
      latency("Between tokens", "tane_inter_token_latency_seconds", before, now),
      card(
        "Cache",
        bytes(sum("tane_kv_cache_bytes") - sum("tane_kv_cache_bytes", { state: "free" })),
        cacheBar(sum),
        "wide",
      ),
      card(
        "Prompts from the cache",
        asked ? percent(sum("tane_prefix_cache_hit_tokens_total") / asked) : "–",
        note(`of ${figure(asked, 6)} tokens since the start`),
      ),
      card(
        "Guessed ahead",
        drafted ? percent(sum("tane_speculation_accepted_tokens_total") / drafted) : "–",
        note(drafted ? `of ${figure(drafted, 6)} guesses were kept` : "nothing was guessed yet"),
      ),
      card("Running", String(sum("tane_active_requests", { state: "running" })), note("requests share each step")),
      card(
        "In the queue",
        String(sum("tane_active_requests", { state: "queued" })),
        note("wait for room in the cache"),
      ),
      card(
        "Answered",
        figure(sum("tane_requests_total"), 6),
        note(`${figure(sum("tane_generated_tokens_total"), 6)} tokens were written since the start`),
        "wide",
      ),
    );
  }
}

function card(title, value, below, kind = "") {
  return el(
    "section",
    { class: `card ${kind}` },
    el("h2", { text: title }),
    el("p", { class: "big", text: value }),
    below,
  );
}

function latency(title, name, before, now) {
  const most = quantile(before, now, name, 0.95);
  return card(
    title,
    time(quantile(before, now, name, 0.5)),
    note(most === null ? "none in the last minute" : `95 in 100 within ${time(most)}, over the last minute`),
  );
}

const note = (text) => el("p", { class: "note", text });

function time(seconds) {
  if (seconds === null) return "–";
  return seconds < 1 ? `${figure(1000 * seconds, 2)} ms` : `${figure(seconds, 2)} s`;
}

function sparkline(rates) {
  const most = Math.max(10, ...rates);
  const points = rates.map(
    (rate, index) => `${((index + SHOWN - rates.length) / (SHOWN - 1)) * 600},${(78 - (72 * rate) / most).toFixed(1)}`,
  );
  const line = points.length > 1 ? svg("polyline", { class: "graph", points: points.join(" ") }) : null;
  return el(
    "div",
    { class: "spark" },
    svg(
      "svg",
      {
        viewBox: "0 0 600 80",
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `Tokens per second over the last two minutes, ${figure(most)} at most`,
      },
      svg("path", { class: "axis", d: "M0 79H600" }),
      line,
    ),
  );
}

function cacheBar(sum) {
  const all = Math.max(1, sum("tane_kv_cache_bytes"));
  const bar = el(
    "div",
    { class: "cache-bar", "aria-hidden": "true" },
    ...STATES.map((state) => {
      const part = el("span", { class: state });
      part.style.width = `${(100 * sum("tane_kv_cache_bytes", { state })) / all}%`;
      return part;
    }),
  );
  return el(
    "div",
    {},
    bar,
    el(
      "p",
      { class: "counts" },
      ...STATES.map((state) =>
        el(
          "span",
          { class: `count ${state}` },
          el("b", { text: bytes(sum("tane_kv_cache_bytes", { state })) }),
          ` ${STATE_NOTES[state]}`,
        ),
      ),
    ),
  );
}
