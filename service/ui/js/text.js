// A text as its tokens: each can be pointed at. Grows by appending, however long it becomes.
// Knows tokens and elements; asks no server. Always: one element for each token, in order; bytes become characters where they
// are whole, so that a character of several tokens stands at the last of them.

import { el } from "./dom.js";

const SHADES = 5;
const DEEPEST = 8;
/** Bits of surprise from which on a token is shaded most. */

export class TokenText {
  /** `onpick` is told the index of a token that was chosen. */
  constructor(label, onpick) {
    this.tokens = [];
    this._onpick = onpick;
    this._active = -1;
    this.element = el("div", {
      class: "text prose",
      role: "listbox",
      tabindex: 0,
      "aria-label": label,
      onclick: (event) => this._clicked(event),
      onkeydown: (event) => this._pressed(event),
    });
    this._decoder = decoder();
  }

  get ids() {
    return this.tokens.map((token) => token.id);
  }

  /** Tokens {id, text, bytes, logprob, forced}; all but `id` and one of `text` and `bytes` may be missing. */
  append(tokens) {
    const made = document.createDocumentFragment();
    for (const { id, text, bytes, logprob, forced } of tokens) {
      const token = { id, text, bytes, logprob, forced };
      const index = this.tokens.push({ ...token, shown: this._decoded(token) }) - 1;
      made.append(this._span(index));
    }
    this.element.append(made);
  }

  /** Take away the tokens from `length` on. Those before may be part of another text now, and are shown as such. */
  truncate(length) {
    this.tokens.length = length;
    while (this.element.children.length > length) this.element.lastChild.remove();
    // Of a character that has begun the first bytes are waited with again.
    this._decoder = decoder();
    for (const [index, token] of this.tokens.entries()) {
      const shown = this._decoded(token);
      if (shown === token.shown && !token.hidden) continue;
      Object.assign(token, { shown, hidden: undefined });
      this.element.children[index].replaceWith(this._span(index));
    }
    this._active = -1;
  }

  /** Mark a token that is generated and no part of the text: the end, a control token, or what a stop text begins with. */
  hide(index, label) {
    Object.assign(this.tokens[index], { hidden: label, shown: "" });
    this.element.children[index].replaceWith(this._span(index));
  }

  /** What stands for a token, where it is not what its bytes alone are: a stop text cuts it, or the end its last one. */
  say(index, shown) {
    this.tokens[index].shown = shown;
    this.element.children[index].replaceWith(this._span(index));
  }

  /** The text of the tokens from one to another. */
  read(from, to) {
    return this.tokens
      .slice(from, to)
      .map((token) => token.shown)
      .join("");
  }

  _span(index) {
    const token = this.tokens[index];
    return el("span", {
      class: classOf(token),
      role: "option",
      "aria-selected": "false",
      id: `${this.element.id}-${index}`,
      text: token.hidden ?? token.shown,
      "aria-label": token.shown.trim() === "" ? (token.hidden ?? "space") : null,
    });
  }

  _decoded(token) {
    return token.bytes ? this._decoder.decode(Uint8Array.from(token.bytes), { stream: true }) : token.text;
  }

  activate(index) {
    const before = this.element.children[this._active];
    before?.classList.remove("active");
    before?.setAttribute("aria-selected", "false");
    this._active = index;
    const span = this.element.children[index];
    if (!span) return this.element.removeAttribute("aria-activedescendant");
    span.classList.add("active");
    span.setAttribute("aria-selected", "true");
    this.element.setAttribute("aria-activedescendant", span.id);
    span.scrollIntoView({ block: "nearest" });
  }

  get active() {
    return this._active;
  }

  _clicked(event) {
    if (String(document.getSelection())) return;
    const span = event.target.closest("[role=option]");
    if (span) this._pick(Array.prototype.indexOf.call(this.element.children, span));
  }

  _pressed(event) {
    const last = this.tokens.length - 1;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -last - 1, End: last + 1 };
    if (event.key in steps && last >= 0 && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      this.activate(Math.max(0, Math.min(last, this._active + steps[event.key])));
    } else if ((event.key === "Enter" || event.key === " ") && this._active >= 0) {
      event.preventDefault();
      this._pick(this._active);
    }
  }

  _pick(index) {
    this.activate(index);
    this._onpick(index);
  }
}

/** Nothing at the beginning of a text is for the decoder: a byte order mark is text like any other. */
const decoder = () => new TextDecoder("utf-8", { ignoreBOM: true });

function classOf(token) {
  if (token.hidden) return "beyond";
  if (token.forced) return "forced";
  if (token.logprob === undefined || token.logprob === null) return "";
  const bits = -token.logprob / Math.LN2;
  return `s${Math.min(SHADES, Math.round((SHADES * bits) / DEEPEST))}`;
}
