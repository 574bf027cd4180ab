// The session of this tab, in which an edit computes only what changed. Knows the tab alone.
// Always: a tab that is duplicated and its twin have two. What a tab keeps is copied then, so the name is kept there only from
// leaving the page to loading it anew.

const KEPT = "tane.session";
let name = sessionStorage.getItem(KEPT);
sessionStorage.removeItem(KEPT);

addEventListener("pagehide", () => {
  if (name) sessionStorage.setItem(KEPT, name);
});
addEventListener("pageshow", () => sessionStorage.removeItem(KEPT));

export function ownSession() {
  return (name ??= `page-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`);
}
