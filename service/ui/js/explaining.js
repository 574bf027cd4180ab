// The explanation of a token, made here and asked of the server, and how far the two are apart.
// Knows the context of a token: the request, its effective parameters and the tokens before. Always: both begin with the same
// logits and the same uniform number, so that what differs is a fault.

import { call } from "./api.js";
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

/** The server's `explain` of this token, in the form of `stages.js`. */
export async function explanationOf(at) {
  const { request, parameters, index, sample } = at;
  const { session_id, resume, num_return, deadline_ms, ...same } = request;
  const context = contextOf(at);
  if (sample > 0) throw new Error("The server explains the first of several texts alone.");
  const least = Math.min(parameters.min_new_tokens, index + 1);
  const answer = await call("/generate", {
    body: {
      ...same,
      ...context,
      seed: parameters.seed,
      max_new_tokens: index + 1,
      min_new_tokens: least,
      explain: true,
      use_cache: false,
    },
  });
  const told = answer.explain[index];
  return {
    ...told,
    stages: told.stages.map((stage) => ({
      ...stage,
      top: stage.top.map((entry) => ({ id: entry.token_id, text: entry.text, probability: entry.probability })),
    })),
  };
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
