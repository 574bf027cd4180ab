// What a whole answer says of a text: where it ends, how it came about, and the seed that repeats it.
// Knows the answers of `/generate`; asks no server.

import { figure, visible } from "./dom.js";

/** The tokens as the whole answer has them, and the text without what only ended it. `start`: where this run began. */
export function settle(text, choice, start) {
  if (text.tokens.length !== choice.token_ids.length && choice.logprobs) {
    text.truncate(0);
    text.append(choice.logprobs.map((entry) => ({ id: entry.token_id, ...entry })));
  }
  complete(text, choice.text, start);
  let place = 0;
  for (const [index, token] of text.tokens.entries()) {
    if (token.hidden) continue;
    if (choice.text.startsWith(token.shown, place)) place += token.shown.length;
    else text.hide(index, visible(token.text || token.shown));
  }
  if (choice.finish_reason === "eos") text.hide(text.tokens.length - 1, "end");
}

/** A character that was broken off by the chosen token is known when the whole text is. */
function complete(text, whole, start) {
  const [before, after] = [text.read(0, start), text.read(start)];
  const isShort = start > 0 && before.length + after.length < whole.length;
  if (isShort && whole.startsWith(before) && whole.endsWith(after))
    text.extend(start - 1, whole.slice(before.length, whole.length - after.length));
}

/** As the server draws them: 53 bits, which every reader of JSON holds exactly. */
export function drawnSeed() {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2));
  return String((high & 0x1fffff) * 2 ** 32 + low);
}

const ENDS = {
  eos: "the model ended it",
  stop: "a stop text was met",
  length: "as long as it may be",
  deadline: "the time was over",
};

export function summary({ choices, finish_reason, usage, timings, seed }) {
  const end = ENDS[finish_reason ?? choices?.[0].finish_reason] ?? "";
  const rate = timings.tokens_per_second === null ? "" : ` · ${figure(timings.tokens_per_second)} tokens/s`;
  const first = ` · prompt in ${figure(1000 * (timings.queue_s + timings.prefill_s))} ms`;
  return `${usage.generated_tokens} tokens${rate}${first} · seed ${seed} · ${end}`;
}
