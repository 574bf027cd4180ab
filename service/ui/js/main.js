// Where the page begins: it asks the server what it serves and takes, makes the views, and shows the one that is asked for.
// Always: a view that is not looked at asks the server nothing.

import { call } from "./api.js";
import { byId, el } from "./dom.js";
import { readLink } from "./link.js";
import { Write } from "./write.js";

const VIEWS = ["write", "beams", "sessions", "compression", "numbers"];
const LAZY = {
  beams: () => import("./beams.js"),
  sessions: () => import("./sessions.js"),
  compression: () => import("./compression.js"),
  numbers: () => import("./numbers.js"),
};
const made = new Map();
/** Each view that was shown, or the promise of it. */
let chosen = "write";
let entered = null;
let followed = "";
/** The last link that was opened: to come back to it writes nothing anew. */

async function begin() {
  const [document, info] = await Promise.all([call("/openapi.json"), call("/info")]);
  const { version, model, reproducibility } = info;
  byId("served").replaceChildren(
    el("span", { class: "model", text: model.name }),
    el("span", {
      text: ` ${reproducibility.level === "bitwise" ? "same seed, same bits" : "best effort"} · ${version}`,
    }),
  );
  byId("served").title = `${model.sha256} · ${reproducibility.fingerprint}`;
  const context = { document, info };
  const write = new Write(document, info);
  const route = () => show(context, write).catch(report);
  window.addEventListener("hashchange", route);
  await route();
}

async function show(context, write) {
  const hash = location.hash || "#write";
  const name = VIEWS.find((view) => hash === `#${view}` || hash.startsWith(`#${view}/`)) ?? "write";
  for (const view of VIEWS) byId(`view-${view}`).hidden = view !== name;
  for (const link of byId("views").children) link.ariaCurrent = link.hash === `#${name}` ? "page" : null;
  document.title = name === "write" ? "Tane" : `${byId(`title-${name}`).textContent} · Tane`;
  chosen = name;
  byId("view-problem").hidden = true;
  entered?.leave?.();
  entered = null;
  if (name in LAZY) await enter(name, context);
  const held = hash === followed ? null : readLink(hash);
  if (!held) return;
  followed = hash;
  await write.openLink(held);
}

/** Show a view, unless another was chosen while this one was fetched. */
async function enter(name, context) {
  if (!made.has(name))
    made.set(
      name,
      LAZY[name]().then(({ view }) => view(byId(`view-${name}`), context)),
    );
  const view = await made.get(name).catch((error) => {
    made.delete(name);
    if (chosen === name) throw error;
  });
  if (chosen !== name || entered) return;
  entered = view;
  view.enter?.();
}

function report(error) {
  const problem = byId(chosen === "write" ? "problem" : "view-problem");
  problem.hidden = false;
  problem.textContent = error.message;
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which view is shown
  byId("main").focus();
});
begin().catch(report);
