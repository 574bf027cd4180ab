// What the cache did for the turns of sessions that this page made. Knows the report's fields alone.
// Always: told of turns that came to their end on this page since it was loaded, and of no one else's.

const kept = new Map();
const nameOf = (model, session) => `${model}/${session}`;

/** Add what `/generate` reported of a turn. */
export function keepTurn(model, session, cache) {
  const { turns, edits, evicted, last } = editsOf(model, session) ?? { turns: 0, edits: 0, evicted: 0, last: null };
  const told =
    cache.first_changed_token === null
      ? { turns: turns + 1, edits, evicted, last }
      : { turns: turns + 1, edits: edits + 1, evicted: evicted + cache.evicted_tokens, last: cache };
  kept.set(nameOf(model, session), told);
}

/** What is told of a session ends with it. */
export function forgetTurns(model, session) {
  kept.delete(nameOf(model, session));
}

/** {turns, edits, evicted, last} of a session: `last` is the report of its last edit, or null. Null without any turn. */
export function editsOf(model, session) {
  return kept.get(nameOf(model, session)) ?? null;
}
