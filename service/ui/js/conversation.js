// The turns of a conversation as controls. Knows roles and texts; asks no server.

import { el } from "./dom.js";

const ROLES = ["system", "user", "assistant"];

export class Conversation {
  constructor(element) {
    this._turns = el("ol", { class: "turns" });
    element.append(
      this._turns,
      el("button", {
        type: "button",
        class: "quiet",
        text: "Add a turn",
        onclick: () => this._add(this._next(), "").querySelector("textarea").focus(),
      }),
    );
    this.fill([{ role: "user", content: "" }]);
  }

  /** The turns that say something. */
  get messages() {
    return [...this._turns.children]
      .map((turn) => ({ role: turn.querySelector("select").value, content: turn.querySelector("textarea").value }))
      .filter((message) => message.content !== "");
  }

  fill(messages) {
    this._turns.replaceChildren();
    for (const { role, content } of messages) this._add(role, content);
  }

  /** Take up an answer, and leave room for what is said to it. */
  answer(text) {
    this.fill([...this.messages, { role: "assistant", content: text }]);
    this._add("user", "").querySelector("textarea").focus();
  }

  _next() {
    return this.messages.at(-1)?.role === "user" ? "assistant" : "user";
  }

  _add(role, content) {
    const number = this._turns.children.length + 1;
    const select = el(
      "select",
      { "aria-label": `Who speaks in turn ${number}` },
      ...ROLES.map((name) => el("option", { value: name, text: name })),
    );
    select.value = role;
    const text = el("textarea", { class: "prose", rows: 2, "aria-label": `What is said in turn ${number}` });
    text.value = content;
    const remove = el("button", {
      type: "button",
      class: "quiet",
      "aria-label": `Remove turn ${number}`,
      text: "×",
      onclick: () => turn.remove(),
    });
    const turn = el("li", {}, el("div", { class: "who" }, select, remove), text);
    this._turns.append(turn);
    return turn;
  }
}
