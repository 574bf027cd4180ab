// What the cache did for a request, as a bar and a sentence. Knows the report's fields alone.

import { el } from "./dom.js";

const REASONS = {
  disabled: "The cache was not to be used.",
  recomputed: "The prompt was computed whole, since its log-probabilities were asked for.",
  cold: "Nothing of this was known.",
  prefix: "Another text began alike.",
  append: "The session goes on where it stood.",
  edit: "The session's text was changed.",
  identical: "The session had this very prompt.",
  evicted: "Some of it had been let go for want of room.",
};

/** `cache` as `/generate` reports it. */
export function cacheReport(cache) {
  const parts = [
    ["reused", cache.reused_tokens, "kept"],
    ["computed", cache.computed_tokens, "computed"],
    ["evicted", cache.evicted_tokens, "let go"],
  ];
  const total = Math.max(
    1,
    parts.reduce((sum, [, count]) => sum + count, 0),
  );
  const bar = el(
    "div",
    { class: "cache-bar", "aria-hidden": "true" },
    ...parts.map(([name, count]) => {
      const part = el("span", { class: name });
      part.style.width = `${(100 * count) / total}%`;
      return part;
    }),
  );
  const counts = parts.map(([name, count, word]) =>
    el("span", { class: `count ${name}` }, el("b", { text: String(count) }), ` ${word}`),
  );
  const place =
    cache.first_changed_token === null
      ? ""
      : ` The first token that differs is number ${cache.first_changed_token + 1}, the prompt's counted.`;
  const shared =
    cache.reason === "edit" && cache.evicted_tokens === 0
      ? " Nothing was let go: another session or a newer text holds it too."
      : "";
  return [
    el("p", { class: "counts" }, el("span", { class: "label", text: "Cache" }), ...counts),
    bar,
    el("p", { class: "note", text: `${REASONS[cache.reason] ?? cache.reason}${place}${shared}` }),
  ];
}
