// What a whole answer says of a text: where it ends, how it came about, and the seed that repeats it.
// Knows the answers of `/generate`; asks no server.

import { figure, visible } from "./dom.js";

/**
 * The tokens as the whole answer has them, and the text without what only ended it.
 * `entries`: the answer's tokens by the server {token_id, text, bytes, logprob}; none where all of that is known.
 * Always: what is shown is the answer's text, letter by letter.
 */
export function settle(text, choice, entries = null) {
  const { tokens } = text;
  if (entries && (tokens.length !== entries.length || !tokens.every((token, index) => isOf(token, entries[index]))))
    rebuild(text, entries);
  let place = 0;
  for (const [index, token] of tokens.entries()) {
    if (choice.text.startsWith(token.shown, place)) {
      place += token.shown.length;
      continue;
    }
    const rest = choice.text.slice(place);
    if (choice.finish_reason === "stop" && rest !== "" && token.shown.startsWith(rest)) {
      text.say(index, rest);
      place = choice.text.length;
    } else text.hide(index, visible(token.text || token.shown));
  }
  if (choice.finish_reason === "eos") text.hide(tokens.length - 1, "end");
  const last = tokens.findLastIndex((token) => !token.hidden);
  if (place < choice.text.length && last >= 0) text.say(last, tokens[last].shown + choice.text.slice(place));
}

function isOf(token, entry) {
  return token.id === entry.token_id && token.bytes && (entry.logprob ?? token.logprob) === token.logprob;
}

/** Anew from what the server says of each token; what it says nothing of is kept. */
function rebuild(text, entries) {
  const before = [...text.tokens];
  text.truncate(0);
  text.append(
    entries.map((entry, index) => {
      const { logprob, forced } = before[index]?.id === entry.token_id ? before[index] : {};
      return { id: entry.token_id, text: entry.text, bytes: entry.bytes, logprob: entry.logprob ?? logprob, forced };
    }),
  );
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
