// What is asked for, as controls: prompt or conversation, seed and parameters. Knows fields and elements; asks no server.
// Always: a request that was filled in comes out as it went in, but for what the form has no control for.

import { Conversation } from "./conversation.js";
import { byId } from "./dom.js";
import { fieldOf } from "./fields.js";
import { ParameterForm } from "./form.js";
import { isSeed } from "./wire.js";

export class Composer {
  constructor(document, info) {
    const names = info.models.map((model) => model.name);
    this._most = fieldOf(document, "num_return").maximum;
    this._form = new ParameterForm(document, info.model.defaults ?? {}, names);
    this._conversation = new Conversation(byId("as-messages"));
    byId("panel-parameters").append(this._form.element);
    this._listen();
  }

  /** The request as it stands. Throws RangeError, with what is wrong or missing. */
  request() {
    const request =
      this._mode === "prompt" ? { prompt: byId("prompt").value } : { messages: this._conversation.messages };
    if (!request.prompt && !request.messages?.length)
      throw new RangeError("Write something for the model to continue.");
    Object.assign(request, this._form.values());
    const seed = byId("field-seed").value.trim();
    if (seed !== "" && !isSeed(seed))
      throw new RangeError("The seed must be a whole number from 0 to 9223372036854775807.");
    return seed === "" ? request : { ...request, seed };
  }

  /** Throws RangeError, before anything is filled in, for a request that is none of this page's. */
  fill(request) {
    checkShape(request, this._most);
    const { prompt, messages, seed, ...rest } = request;
    byId("compose").elements.mode.value = messages ? "messages" : "prompt";
    this._switch();
    if (messages) this._conversation.fill(messages);
    else byId("prompt").value = prompt ?? "";
    byId("field-seed").value = seed ?? "";
    this._form.fill(rest);
  }

  /** Take up an answer into the conversation. */
  reply(text) {
    this._conversation.answer(text);
  }

  /** Show what the server says of a field beside it. Answers whether it is here. */
  blame(param, message) {
    return this._form.blame(param, message);
  }

  get _mode() {
    return byId("compose").elements.mode.value;
  }

  _switch() {
    byId("as-prompt").hidden = this._mode !== "prompt";
    byId("as-messages").hidden = this._mode !== "messages";
  }

  _listen() {
    const form = byId("compose");
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    for (const radio of form.elements.mode) radio.addEventListener("change", () => this._switch());
    byId("new-seed").addEventListener("click", () => {
      byId("field-seed").value = "";
      byId("field-seed").focus();
    });
  }
}

const isText = (value) => typeof value === "string";
const isWhole = (value) => Number.isInteger(value) && value >= 0;

/** Of what the page itself takes apart; all else is the server's to judge. `most`: texts at once. */
function checkShape({ prompt, messages, seed, num_return, resume }, most) {
  const isMessage = (each) => isText(each?.role) && isText(each?.content);
  const faults = [
    ["prompt is no text", !isText(prompt ?? "")],
    ["messages are no list of roles and texts", !Array.isArray(messages ?? []) || !(messages ?? []).every(isMessage)],
    [`num_return is none of 1 to ${most}`, !isWhole(num_return ?? 1) || num_return === 0 || num_return > most],
    ["seed is none", !isSeed(String(seed ?? 0))],
    ["resume holds no token ids", resume && !(Array.isArray(resume.token_ids) && resume.token_ids.every(isWhole))],
  ];
  const fault = faults.find(([, isSo]) => isSo);
  if (fault) throw new RangeError(fault[0]);
}
