// What each session keeps warm, as a tree of forks, and what edits from this page let go of. Knows `/sessions`.
// Always: what is shown is what the server says now, but for edits, of which it tells only who makes them.

import { call, callText } from "./api.js";
import { bytes, el, figure, plainTable } from "./dom.js";
import { samplesOf, total } from "./exposition.js";
import { Polling } from "./polling.js";
import { editsOf, forgetTurns } from "./turns.js";

const EVERY_MS = 2000;
const REASONS = { edit: "by edits", capacity: "for want of room", ttl: "unused for too long", explicit: "forgotten" };
const NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;

export function view(section, { info }) {
  const sessions = new Sessions(info);
  section.append(
    el("p", {
      class: "lead",
      text: "A session is a name for a text whose keys and values stay in memory. A prompt that goes on from it, or changes part of it, computes only what is new. Losing one costs time and no text.",
    }),
    sessions.element,
  );
  return sessions;
}

class Sessions {
  constructor(info) {
    this._models = info.models.map((model) => model.name);
    this._polling = new Polling(() => this._look(), EVERY_MS);
    this._list = el("div");
    this._problem = el("p", { class: "problem", role: "alert", hidden: true });
    this.element = el("div", {}, this._problem, this._list);
  }

  enter() {
    this._polling.enter();
  }

  leave() {
    this._polling.leave();
  }

  /** Answers whether to look again. */
  async _look() {
    if (this._isTypedIn()) return true;
    return this._try(async () => {
      const all = await Promise.all(
        this._models.map(async (model) => [
          model,
          (await call(`/sessions?model=${encodeURIComponent(model)}`)).sessions,
        ]),
      );
      const samples = samplesOf(await callText("/metrics"));
      if (this._isTypedIn()) return;
      const focused = document.activeElement?.dataset?.name;
      this._list.replaceChildren(...all.map(([model, sessions]) => this._of(model, sessions, samples)));
      if (focused)
        [...this._list.querySelectorAll("[data-name]")].find((each) => each.dataset.name === focused)?.focus();
    });
  }

  /** Whether someone writes a name, which must not be taken away. */
  _isTypedIn() {
    return this._list.contains(document.activeElement) && document.activeElement.tagName === "INPUT";
  }

  /** Answers whether the server may be asked again. */
  async _try(action) {
    try {
      await action();
      this._problem.hidden = true;
      return true;
    } catch (error) {
      this._problem.textContent = error.message;
      this._problem.hidden = false;
      return error.status !== 401;
    }
  }

  _of(model, sessions, samples) {
    const title = this._models.length > 1 ? el("h2", { text: model }) : null;
    if (!sessions.length)
      return el(
        "section",
        {},
        title,
        el("p", { class: "empty", text: "There is none. Each text that is written here makes one." }),
      );
    return el(
      "section",
      {},
      title,
      plainTable(
        `Sessions of ${model}`,
        ["session", "tokens", "memory", "last used", "let go by edits made here", ""],
        ordered(sessions).map((entry) => this._row(model, entry)),
      ),
      el("p", { class: "note", text: `Let go since the server began, in tokens: ${evictions(samples, model)}.` }),
    );
  }

  _row(model, { session, depth }) {
    const query = `?model=${encodeURIComponent(model)}`;
    const path = `/sessions/${encodeURIComponent(session.id)}`;
    const fork = el("input", { "aria-label": `Name of a fork of ${session.id}`, placeholder: "fork as …" });
    const form = el(
      "form",
      { class: "fork" },
      fork,
      el("button", { type: "submit", class: "quiet", text: "Fork", "data-name": `fork ${model} ${session.id}` }),
      el("button", {
        type: "button",
        class: "quiet",
        text: "Forget",
        "aria-label": `Forget ${session.id}`,
        "data-name": `forget ${model} ${session.id}`,
        onclick: () =>
          this._try(async () => {
            await call(path + query, { method: "DELETE" });
            forgetTurns(model, session.id);
            await this._look();
          }),
      }),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this._try(async () => {
        if (!NAME.test(fork.value)) throw new Error("A name has letters, digits, dots, dashes and underscores.");
        await call(`${path}/fork`, { body: { session_id: fork.value, model } });
        fork.blur();
        await this._look();
      });
    });
    const name = el(
      "th",
      { scope: "row", class: "session-name" },
      el("span", { class: depth ? "twig" : "", text: session.id }),
      session.busy ? el("small", { text: " writing" }) : null,
    );
    name.style.paddingLeft = `${1.5 * depth}rem`;
    return el(
      "tr",
      {},
      name,
      el("td", { class: "number", text: String(session.tokens) }),
      el("td", { class: "number", text: bytes(session.bytes) }),
      el("td", { text: session.busy ? "now" : ago(session.idle_s) }),
      el("td", { class: "edits" }, ...edits(model, session.id)),
      el("td", {}, form),
    );
  }
}

function evictions(samples, model) {
  return Object.entries(REASONS)
    .map(
      ([reason, words]) =>
        `${figure(total(samples, "tane_kv_cache_evicted_tokens_total", { model, reason }), 9)} ${words}`,
    )
    .join(", ");
}

/** What edits from this page let go of in a session, and what the last one kept. */
function edits(model, session) {
  const told = editsOf(model, session);
  if (told === null) return [el("span", { class: "empty", text: "–" })];
  const { turns, edits: count, evicted, last } = told;
  if (last === null) return [el("p", { class: "note", text: `no edit in ${counted(turns, "turn")}` })];
  const all = `${counted(evicted, "token")} by ${counted(count, "edit")} in ${counted(turns, "turn")}`;
  const lastly = `the last, from token ${last.first_changed_token + 1} on: ${last.evicted_tokens} let go, ${last.reused_tokens} kept`;
  return [el("span", { text: all }), el("p", { class: "note", text: lastly })];
}

const counted = (number, word) => `${figure(number, 9)} ${word}${number === 1 ? "" : "s"}`;

/** Each session with its depth: forks follow what they were forked from. */
function ordered(sessions) {
  const names = new Set(sessions.map((session) => session.id));
  const placed = [];
  const place = (session, depth) => {
    placed.push({ session, depth });
    for (const fork of sessions) if (fork.parent === session.id && fork.id !== session.id) place(fork, depth + 1);
  };
  for (const session of sessions) if (session.parent === null || !names.has(session.parent)) place(session, 0);
  return placed;
}

function ago(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  return seconds < 3600 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
}
