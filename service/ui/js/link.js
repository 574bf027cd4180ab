// A link that holds a whole request, and the request as code in three languages.
// Knows values and texts. Always: what is read back is what was written, seeds digit for digit; the server is told nothing
// by opening a link, since what follows "#" stays in the browser until the request is sent.

import { toJson } from "./wire.js";

const MARK = "#write/";

const OWN = ["session_id", "deadline_ms", "use_cache"];
/** What is this reader's own and changes no text: a link may touch nobody's sessions. */

/** The address of this page with `request` in it; `fingerprint` is of the engine that answered. */
export function linkOf(request, fingerprint) {
  const raw = new TextEncoder().encode(JSON.stringify({ request: shared(request), fingerprint }));
  const text = btoa(Array.from(raw, (byte) => String.fromCharCode(byte)).join(""));
  return `${location.origin}${location.pathname}${MARK}${text.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "")}`;
}

/** {request, fingerprint} of an address, or null where it holds none. Throws RangeError for one that cannot be read. */
export function readLink(hash) {
  if (!hash.startsWith(MARK)) return null;
  const held = decoded(hash.slice(MARK.length));
  if (!isObject(held?.request)) throw new RangeError("This link holds no request, or only part of one.");
  return { ...held, request: shared(held.request) };
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function decoded(text) {
  try {
    const letters = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
    const raw = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(raw));
  } catch {
    return null;
  }
}

function shared(request) {
  return Object.fromEntries(Object.entries(request).filter(([name]) => !OWN.includes(name)));
}

const quoted = (text) => `'${text.replace(/'/g, "'\\''")}'`;

export function curl(request, needsKey) {
  const key = needsKey ? ' \\\n  -H "authorization: Bearer $TANE_API_KEY"' : "";
  return `curl ${location.origin}/generate -H 'content-type: application/json'${key} \\\n  -d ${quoted(toJson(request))}\n`;
}

export function python(request, needsKey) {
  const key = needsKey ? '\n    headers={"authorization": f"Bearer {os.environ[\'TANE_API_KEY\']}"},' : "";
  const imports = needsKey ? "import os\n\nimport httpx\n" : "import httpx\n";
  return `${imports}\nanswer = httpx.post(\n    "${location.origin}/generate",\n    json=${dictionary(request, (value, name) => (name === "seed" ? value : literal(value)))},${key}\n    timeout=300,\n).json()\nprint(answer["text"])\n`;
}

export function javascript(request, needsKey) {
  const key = needsKey ? ", authorization: `Bearer ${process.env.TANE_API_KEY}`" : "";
  return `const response = await fetch("${location.origin}/generate", {\n  method: "POST",\n  headers: { "content-type": "application/json"${key} },\n  body: ${JSON.stringify(toJson(request))},\n});\nconsole.log((await response.json()).text);\n`;
}

/** A value as Python writes it. */
function literal(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  return typeof value === "object" ? dictionary(value, literal) : JSON.stringify(value);
}

function dictionary(value, written) {
  return `{${Object.entries(value)
    .map(([name, item]) => `${JSON.stringify(name)}: ${written(item, name)}`)
    .join(", ")}}`;
}
