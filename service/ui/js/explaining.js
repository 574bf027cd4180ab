// The explanation of a token, made here and asked of the server, and how far the two are apart.
// Knows the context of a token: the request, its effective parameters and the tokens before. Always: both begin with the same
// logits and the same uniform number, so that what differs is a fault.

import { stream } from "./api.js";
import { uniform } from "./philox.js";
import { explain } from "./stages.js";

/** What comes before the token, in the fields of `/logits`. */
export function contextOf({ request, tokens, index }) {
  const { model, prompt, prompt_tokens, messages } = request;
  const before = tokens.slice(0, index).map((token) => token.id);
  return { model, prompt, prompt_tokens, messages, ...(before.length ? { resume: { token_ids: before } } : {}) };
}

export function settingsOf({ temperature, top_k, top_p, min_p }) {
  return { temperature, top_k, top_p, min_p };
}

function biasOf(parameters) {
  return Object.entries(parameters.logit_bias ?? {}).map(([id, value]) => [Number(id), value]);
}

/** Whether the stages can be computed from logits, bias and bans alone. */
export function canFollow({ parameters, index }) {
  const { repetition_penalty, presence_penalty, frequency_penalty, constraint, min_new_tokens } = parameters;
  return (
    repetition_penalty === 1 &&
    presence_penalty === 0 &&
    frequency_penalty === 0 &&
    !constraint &&
    index >= min_new_tokens
  );
}

/** With these settings instead of the request's own, or with those. */
export function explainAt(at, settings) {
  const { parameters, sample, index } = at;
  const draw = { ...settings, bias: biasOf(parameters), banned: parameters.banned_token_ids ?? [] };
  return explain(at.row, { ...draw, uniform: uniform(parameters.seed, sample, index) }, at.order);
}

/** The server's `explain` of this token, in the form of `stages.js`. `asking` breaks it off, and is aborted with its end. */
export async function explanationOf(at, asking = new AbortController()) {
  const told = await explained(at, asking);
  return {
    ...told,
    stages: told.stages.map((stage) => ({
      ...stage,
      top: stage.top.map((entry) => ({ id: entry.token_id, text: entry.text, probability: entry.probability })),
    })),
  };
}

/**
 * The very request once more, as far as this token: a form, a least length and penalties depend on all of it. A first text
 * goes on after the tokens before; one after it is drawn anew with those before it, since none goes on by itself.
 */
async function explained(at, asking) {
  const { request, parameters, index, sample } = at;
  const { session_id, deadline_ms, logprobs, resume, num_return, ...same } = request;
  const { seed, max_new_tokens } = parameters;
  const whole = { ...same, seed, max_new_tokens, explain: true, use_cache: false };
  const body = sample === 0 ? { ...whole, ...contextOf(at) } : { ...whole, num_return: sample + 1 };
  let place = sample === 0 ? index : 0;
  try {
    for await (const event of stream("/generate", body, asking.signal)) {
      if (event.usage || event.index !== sample) continue;
      if (index < place + event.explain.length) return event.explain[index - place];
      place += event.explain.length;
    }
  } finally {
    asking.abort();
  }
  throw new Error("The server did not come as far as this token.");
}

/** How far two explanations of one choice are apart, for people. */
export function difference(ours, theirs) {
  const names = (told) => told.stages.map((stage) => `${stage.name} ${stage.candidates}`).join(", ");
  if (names(ours) !== names(theirs)) return `Not equal: ${names(ours)} here, ${names(theirs)} on the server.`;
  let most = Math.max(Math.abs(ours.entropy - theirs.entropy), Math.abs((ours.uniform ?? 0) - (theirs.uniform ?? 0)));
  for (const [index, stage] of theirs.stages.entries()) {
    most = Math.max(most, Math.abs(stage.mass - ours.stages[index].mass));
    for (const [place, entry] of stage.top.entries()) {
      const own = ours.stages[index].top[place];
      if (own?.id !== entry.id) return `Not equal: after ${stage.name} another token is number ${place + 1}.`;
      most = Math.max(most, Math.abs(entry.probability - own.probability));
    }
  }
  return most < 1e-12
    ? `Equal to the server's, stage by stage (the largest difference is ${most === 0 ? "0" : most.toExponential(0)}).`
    : `Not equal: the largest difference is ${most.toExponential(1)}.`;
}
