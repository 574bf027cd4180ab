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
const opened = new Map();
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
  const route = () => show(context, write);
  window.addEventListener("hashchange", route);
  await route();
}

async function show(context, write) {
  const hash = location.hash || "#write";
  const name = VIEWS.find((view) => hash === `#${view}` || hash.startsWith(`#${view}/`)) ?? "write";
  for (const view of VIEWS) byId(`view-${view}`).hidden = view !== name;
  for (const link of byId("views").children) link.ariaCurrent = link.hash === `#${name}` ? "page" : null;
  document.title = name === "write" ? "Tane" : `${byId(`title-${name}`).textContent} · Tane`;
  for (const [view, instance] of opened) if (view !== name) instance.leave?.();
  if (name in LAZY) await openView(name, context);
  const held = hash === followed ? null : readLink(hash);
  if (!held) return;
  followed = hash;
  await write.openLink(held);
}

async function openView(name, context) {
  if (!opened.has(name)) {
    const { view } = await LAZY[name]();
    opened.set(name, view(byId(`view-${name}`), context));
  }
  opened.get(name).enter?.();
}

begin().catch((error) => {
  byId("problem").hidden = false;
  byId("problem").textContent = error.message;
});
