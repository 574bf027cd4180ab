// A text, its link and its request as code, for the clipboard; where there is none they stand on the page.
// Knows the answer and the request that repeats it. Always: a key is in none of them.

import { byId } from "./dom.js";
import { curl, javascript, linkOf, python } from "./link.js";

const SNIPPETS = { curl, python, javascript };
const SAID_MS = 1200;
const timers = new WeakMap();
/** Of the buttons that say that something was copied. */

/** Copy what `button` names by its data-copy. `request` brings this very answer. */
export async function share(button, request, response) {
  const kind = button.dataset.copy;
  const made = madeOf(kind, request, response);
  const snippet = byId("snippet");
  snippet.textContent = made;
  snippet.hidden = kind === "text";
  try {
    await navigator.clipboard.writeText(made);
    sayCopied(button);
  } catch {
    snippet.hidden = false;
    snippet.focus();
  }
}

/** For a moment after the last click. */
function sayCopied(button) {
  button.dataset.label ??= button.textContent;
  button.textContent = "Copied";
  clearTimeout(timers.get(button));
  timers.set(
    button,
    setTimeout(() => {
      button.textContent = button.dataset.label;
    }, SAID_MS),
  );
}

function madeOf(kind, request, response) {
  if (kind === "text") return (response.choices ?? [response]).map((choice) => choice.text).join("\n\n");
  if (kind === "link") return linkOf(request, response.reproducibility.fingerprint);
  return SNIPPETS[kind](request, sessionStorage.getItem("tane.key") !== null);
}
