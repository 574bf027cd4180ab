// The first view: a request is written, its text arrives, and each token of it can be opened and replaced.
// Knows the form, the text and the inspector. Always: what is sent is what the link holds; a text that is continued with
// another token keeps its seed, so that the numbers drawn after it are those of its places.

import { ApiError, call, stream } from "./api.js";
import { drawnSeed, settle, summary } from "./answer.js";
import { cacheReport } from "./cache.js";
import { Composer } from "./composer.js";
import { byId, el, visible } from "./dom.js";
import { Inspector } from "./inspector.js";
import { share } from "./sharing.js";
import { ownSession } from "./tab.js";
import { TokenText } from "./text.js";
import { keepTurn } from "./turns.js";

const BUSY_TRIES = 20;

export class Write {
  constructor(document, info) {
    this._info = info;
    this._composer = new Composer(document, info);
    this._inspector = new Inspector(
      byId("panel-token"),
      (index, candidate) => this._choose(index, candidate),
      (index) => this._open(this._shown, index),
    );
    this._texts = [];
    this._versions = [];
    this._run = null;
    this._listen();
  }

  /** Take over a request from a link, and send it. A link is anybody's text: one that cannot be shown is said to be. */
  async openLink({ request, fingerprint }) {
    try {
      this._composer.fill(request);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this._problem(`This link cannot be opened: ${error.message}.`);
      return;
    }
    const { models } = this._info;
    const { fingerprint: here } = (models.find((model) => model.name === request.model) ?? models[0]).reproducibility;
    const note =
      fingerprint && !String(fingerprint).startsWith(here)
        ? "This link was made on another engine or model, so the text may differ."
        : null;
    if ((await this._send(request)) && note) this._problem(note);
  }

  _listen() {
    byId("compose").addEventListener("submit", (event) => {
      event.preventDefault();
      this._submit();
    });
    byId("stop").addEventListener("click", () => this._run?.abort());
    byId("shade").addEventListener("change", (event) =>
      byId("texts").classList.toggle("unshaded", !event.target.checked),
    );
    for (const button of document.querySelectorAll("[data-copy]"))
      button.addEventListener("click", () => share(button, this._repeatable(), this._response));
    byId("view-write").addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || byId("panel-token").hidden) return;
      this._tab("parameters");
      this._texts[this._shown]?.element.focus();
    });
    byId("reply").addEventListener("click", () => this._composer.reply(this._response.text));
    const tabs = ["parameters", "token"];
    for (const name of tabs) {
      byId(`tab-${name}`).addEventListener("click", () => this._tab(name));
      byId(`tab-${name}`).addEventListener("keydown", (event) => {
        if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
        const other = tabs.find((each) => each !== name);
        this._tab(other);
        byId(`tab-${other}`).focus();
      });
    }
  }

  _tab(name) {
    for (const each of ["parameters", "token"]) {
      byId(`tab-${each}`).setAttribute("aria-selected", String(each === name));
      byId(`tab-${each}`).tabIndex = each === name ? 0 : -1;
      byId(`panel-${each}`).hidden = each !== name;
    }
    byId("side").classList.toggle("on-token", name === "token");
  }

  _submit() {
    try {
      this._send(this._composer.request());
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this._problem(error.message);
    }
  }

  /** Begin anew with this request. Its seed is drawn here, so that a text which is stopped has one too. Answers whether it came. */
  async _send(asked) {
    const request = { ...asked, seed: asked.seed ?? drawnSeed() };
    const count = request.num_return ?? 1;
    this._texts = Array.from({ length: count }, (_, index) => {
      const text = new TokenText(
        count === 1 ? "Generated text. Arrow keys move between tokens, Enter opens one." : `Text ${index + 1}`,
        (token) => this._open(index, token),
      );
      text.element.id = `text-${index}`;
      return text;
    });
    byId("texts").replaceChildren(...this._texts.map((text) => text.element));
    this._versions = [];
    this._showVersions();
    const given = request.resume?.token_ids ?? [];
    const hasCome = await this._generate(request, { logprobs: { top: 0 } }, () => this._named(given));
    if (hasCome) this._keepVersion("as drawn");
    return hasCome;
  }

  /** Tokens by their ids, with the bytes that they add to a text. */
  async _named(ids) {
    if (ids.length === 0) return [];
    const { model } = this._request;
    const { tokens } = await call("/detokenize", { body: { token_ids: ids, tokens: true, model } });
    return tokens.map((token) => ({ ...token, id: token.token_id }));
  }

  /**
   * Send `request` and show what comes, after what the texts hold and the tokens that `given` tells, which it goes on after.
   * `more` is asked for beside it. Answers whether the whole answer came, and nothing else was wanted meanwhile.
   */
  async _generate(request, more, given) {
    this._run?.abort();
    const run = (this._run = new AbortController());
    Object.assign(this, { _request: request, _response: null, _shown: 0 });
    this._inspector.clear();
    byId("side").classList.remove("on-token");
    this._begun();
    try {
      const before = await given();
      if (run !== this._run) return false;
      this._texts[0].append(before);
      for await (const event of this._events({ ...request, ...this._session(request), ...more }, run.signal)) {
        if (run !== this._run) return false;
        if (event.usage) await this._finish(event, run);
        else this._buffer(event);
      }
    } catch (error) {
      if (run === this._run) await this._failed(error, run);
    }
    if (run !== this._run) return false;
    this._ended();
    return this._response !== null;
  }

  /** The events of the request; one more try where the session's last turn has not quite ended. */
  async *_events(body, signal) {
    for (let tries = 0; ; tries += 1) {
      try {
        for await (const event of stream("/generate", body, signal)) {
          if (event.usage && body.session_id) keepTurn(event.model, body.session_id, event.cache);
          yield event;
        }
        return;
      } catch (error) {
        if (error.code !== "session_busy" || tries === BUSY_TRIES || signal.aborted) throw error;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
  }

  /** A session of this tab's own, so that an edit computes only what changed. It changes no text. */
  _session(request) {
    if (request.session_id || request.use_cache === false) return {};
    return { session_id: ownSession() };
  }

  _buffer({ index, text, token_ids, logprobs }) {
    const last = token_ids.length - 1;
    const tokens = token_ids.map((id, place) => ({
      id,
      text: place === last ? text : "",
      bytes: logprobs?.[place].bytes,
      logprob: logprobs?.[place].logprob,
    }));
    this._waiting.push([index, tokens]);
    this._frame ||= requestAnimationFrame(() => this._flush());
  }

  /** Put what came since the last frame into the page, all at once. */
  _flush() {
    cancelAnimationFrame(this._frame);
    this._frame = 0;
    for (const [index, tokens] of this._waiting.splice(0)) this._texts[index].append(tokens);
    byId("status").textContent = "Writing…";
  }

  _begun() {
    this._waiting = [];
    cancelAnimationFrame(this._frame);
    this._frame = 0;
    this._problem(null);
    byId("go").textContent = "Write anew";
    byId("stop").hidden = false;
    byId("take").hidden = byId("cache").hidden = byId("snippet").hidden = true;
    byId("texts").setAttribute("aria-busy", "true");
    byId("status").textContent = "Waiting for the first token…";
  }

  /** Take over the whole answer. What each token is comes with log-probabilities, and is asked for where there are none. */
  async _finish(response, run) {
    const choices = response.choices ?? [response];
    const entries = await Promise.all(choices.map((choice) => choice.logprobs ?? this._named(choice.token_ids)));
    if (run !== this._run) return;
    this._flush();
    for (const [index, choice] of choices.entries()) settle(this._texts[index], choice, entries[index]);
    this._finished(response);
  }

  _finished(response) {
    this._response = response;
    byId("status").textContent = summary(response);
    byId("cache").replaceChildren(...cacheReport(response.cache));
    byId("cache").hidden = byId("take").hidden = false;
    byId("reply").hidden = !this._request.messages || this._texts.length > 1;
  }

  async _failed(error, run) {
    if (this._response !== null) return;
    this._flush();
    if (error.name === "AbortError") await this._stopped(run);
    else {
      byId("status").textContent = "";
      const isHere = error instanceof ApiError && this._composer.blame(error.param, error.message);
      this._problem(isHere ? `${error.message}, as is marked beside it.` : error.message);
    }
  }

  /** What was stopped is as if no more had been asked for: the server tells of it as of any whole answer. */
  async _stopped(run) {
    const [text] = this._texts;
    const count = text.tokens.length;
    byId("status").textContent = "Stopped.";
    // A form is kept within a length: of a shorter answer it would be another.
    if (this._texts.length > 1 || this._request.constraint) {
      byId("status").textContent =
        "Stopped. Of several texts, or with a constraint, this is no whole answer: its tokens cannot be opened.";
      return;
    }
    if (count === 0 || count < (this._request.resume?.token_ids.length ?? 0)) return;
    const request = {
      ...this._request,
      max_new_tokens: count,
      min_new_tokens: Math.min(count, this._request.min_new_tokens ?? 0),
    };
    try {
      const response = await call("/generate", { body: { ...request, resume: { token_ids: text.ids } } });
      if (run !== this._run) return;
      this._request = request;
      await this._finish(response, run);
      if (run !== this._run) return;
      byId("cache").hidden = true;
      byId("status").textContent = `Stopped after ${count} tokens · seed ${response.seed}`;
    } catch (error) {
      if (run === this._run) this._problem(error.message);
    }
  }

  _ended() {
    this._run = null;
    this._waiting = [];
    cancelAnimationFrame(this._frame);
    this._frame = 0;
    byId("go").textContent = "Write";
    byId("stop").hidden = true;
    byId("texts").removeAttribute("aria-busy");
  }

  _problem(message) {
    byId("problem").hidden = message === null;
    byId("problem").textContent = message ?? "";
  }

  /** Look inside a token of one of the texts. */
  _open(sample, index) {
    const text = this._texts[sample];
    if (this._response === null || !text?.tokens[index]) return;
    this._shown = sample;
    for (const other of this._texts) if (other !== text) other.activate(-1);
    text.activate(index);
    this._tab("token");
    this._inspector.show({
      request: this._request,
      parameters: this._response.parameters,
      tokens: text.tokens,
      index,
      sample,
      chooses: this._texts.length === 1,
    });
  }

  /** Go on from another token at this place. */
  async _choose(index, candidate) {
    const [text] = this._texts;
    const { seed } = this._response;
    const ids = [...text.ids.slice(0, index), candidate.id];
    text.truncate(index);
    const given = async () => [{ ...(candidate.bytes ? candidate : (await this._named([candidate.id]))[0]), forced: true }];
    const { resume, logprobs, ...first } = this._request;
    // Log-probabilities would have the server go over all that is there once more, where the cache has it.
    const request = { ...first, seed, resume: { token_ids: ids } };
    if (!(await this._generate(request, { speculation: "off" }, given))) return;
    this._keepVersion(`${visible(text.tokens[index].shown || candidate.text)} at ${index + 1}`);
    text.activate(index);
    text.element.focus();
  }

  _keepVersion(label) {
    if (this._response === null || this._texts.length > 1) return;
    this._versions.push({
      label,
      tokens: [...this._texts[0].tokens],
      request: this._request,
      response: this._response,
    });
    this._showVersions();
  }

  /** The texts that were had from this prompt, to go back to. */
  _showVersions() {
    const list = byId("branches");
    list.hidden = this._versions.length < 2;
    list.replaceChildren(
      ...this._versions.map((version, index) =>
        el("button", {
          type: "button",
          class: "branch",
          "aria-pressed": String(version.response === this._response),
          onclick: () => this._restore(index),
          text: version.label,
        }),
      ),
    );
  }

  /** Back to a version, from whatever is shown or is being written. */
  _restore(index) {
    const { tokens, request, response } = this._versions[index];
    this._run?.abort();
    this._ended();
    this._problem(null);
    this._request = request;
    const [text] = this._texts;
    text.truncate(0);
    text.append(tokens);
    settle(text, response);
    this._inspector.clear();
    this._finished(response);
    this._showVersions();
  }

  /** The request that brings this very text: with its seed, which may have been drawn. */
  _repeatable() {
    return { ...this._request, seed: this._response.seed };
  }
}
