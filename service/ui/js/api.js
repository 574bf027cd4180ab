// Calls to the server that this page came from, with a key where it asks for one.
// Knows HTTP and the form of errors. Always: the key is kept by this tab alone and sent to this origin alone.

import { byId } from "./dom.js";
import { fromJson, toJson } from "./wire.js";

const KEPT = "tane.key";
const KEY = /^[!-~]{1,512}$/;
const PROBLEMS = {
  unknown: "That key is not known here.",
  form: "A key has letters, digits and signs of ASCII alone, at most 512.",
};

/** What the server said instead of an answer. */
export class ApiError extends Error {
  constructor(status, error) {
    super(error.message);
    Object.assign(this, {
      status,
      code: error.code,
      param: error.param,
      allowed: error.allowed,
      requestId: error.request_id,
    });
  }
}

let asking = null;

byId("key-form").addEventListener("submit", (event) => {
  if (KEY.test(byId("key").value.trim())) return;
  event.preventDefault();
  say("form");
});

function say(problem) {
  byId("key-problem").hidden = problem === null;
  byId("key-problem").textContent = PROBLEMS[problem] ?? "";
}

/** Ask the person for a key; calls that come meanwhile wait for the same one. */
function askKey(wasWrong) {
  const dialog = byId("key-dialog");
  say(wasWrong ? "unknown" : null);
  asking ??= new Promise((resolve, reject) => {
    dialog.addEventListener(
      "close",
      () => {
        asking = null;
        const key = byId("key").value.trim();
        byId("key").value = "";
        if (dialog.returnValue === "dismissed" || !KEY.test(key))
          return reject(new ApiError(401, { message: "No key was given: load the page again to give one." }));
        sessionStorage.setItem(KEPT, key);
        resolve();
      },
      { once: true },
    );
    dialog.addEventListener(
      "cancel",
      () => {
        dialog.returnValue = "dismissed";
      },
      { once: true },
    );
    dialog.returnValue = "";
    dialog.showModal();
  });
  return asking;
}

function headers(hasBody) {
  const key = sessionStorage.getItem(KEPT);
  return {
    ...(hasBody ? { "content-type": "application/json" } : {}),
    ...(key ? { authorization: `Bearer ${key}` } : {}),
  };
}

/** The response, once the server lets us in. Throws ApiError. */
async function open(path, { body, method, signal } = {}) {
  for (;;) {
    const hasKey = sessionStorage.getItem(KEPT) !== null;
    const response = await fetch(path, {
      method: method ?? (body === undefined ? "GET" : "POST"),
      headers: headers(body !== undefined),
      body: body === undefined ? undefined : toJson(body),
      cache: "no-store",
      signal,
    });
    if (response.ok) return response;
    const answer = await response.json().catch(() => ({}));
    if (response.status !== 401)
      throw new ApiError(response.status, answer.error ?? { message: `the server answered ${response.status}` });
    await askKey(hasKey);
  }
}

/** The JSON that a route answers; null where it answers nothing. Throws ApiError. */
export async function call(path, options) {
  const response = await open(path, options);
  return response.status === 204 ? null : fromJson(await response.text());
}

export async function callText(path, options) {
  return (await open(path, options)).text();
}

/** Yields the events of a stream as values, until it ends. Throws ApiError, also for an error on the way. */
export async function* stream(path, body, signal) {
  const response = await open(path, { body: { ...body, stream: true }, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const event = fromJson(line.slice(6));
      if (event.error) throw new ApiError(200, event.error);
      yield event;
    }
  }
}
