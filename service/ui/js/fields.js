// The fields of `/generate` as the server's own OpenAPI document tells them: what each means, takes and is by default.
// Knows schemas and values; knows no elements. Always: a field that a newer server adds is here too.

const GROUPS = [
  ["Choice", ["temperature", "top_k", "top_p", "min_p"]],
  ["Length", ["max_new_tokens", "min_new_tokens", "stop", "stop_token_ids", "ignore_eos"]],
  ["Repetition", ["repetition_penalty", "penalty_scope", "presence_penalty", "frequency_penalty"]],
  ["Form", ["constraint", "logit_bias", "banned_token_ids"]],
  ["Serving", ["model", "num_return", "session_id", "use_cache", "speculation", "deadline_ms"]],
];
const OWN = [
  "prompt",
  "prompt_tokens",
  "messages",
  "stream",
  "logprobs",
  "explain",
  "resume",
  "seed",
  "beam_width",
  "length_penalty",
];
/** What the page has controls of its own for. */

/** [{title, fields: [field]}]: field is {name, kind, description, initial, minimum, maximum, exclusive, options, text}. */
export function groupsOf(document) {
  const properties = schemaOf(document).properties;
  const placed = new Set([...OWN, ...GROUPS.flatMap(([, names]) => names)]);
  const other = Object.keys(properties).filter((name) => !placed.has(name));
  return [...GROUPS, ["Other", other]]
    .map(([title, names]) => ({
      title,
      fields: names.filter((name) => name in properties).map((name) => field(name, properties[name])),
    }))
    .filter((group) => group.fields.length);
}

/** One field by its name. */
export function fieldOf(document, name) {
  return field(name, schemaOf(document).properties[name]);
}

function schemaOf(document) {
  return document.paths["/generate"].post.requestBody.content["application/json"].schema;
}

function field(name, schema) {
  const form = schema.anyOf?.find((each) => each.type !== "null") ?? schema;
  const minimum = form.minimum ?? form.exclusiveMinimum;
  return {
    name,
    kind: kindOf(form),
    description: schema.description ?? "",
    initial: schema["x-default"] ?? schema.default ?? null,
    minimum,
    maximum: form.maximum,
    exclusive: form.exclusiveMinimum !== undefined,
    options: form.enum,
    pattern: form.pattern,
    items: form.items?.type,
  };
}

function kindOf(form) {
  if (form.enum) return "choice";
  if (form.type === "array") return "list";
  return { integer: "integer", number: "number", boolean: "boolean", string: "text" }[form.type] ?? "json";
}

/** What may be written, for people. */
export function rangeOf(field) {
  const { kind, minimum, maximum, exclusive } = field;
  if (kind === "list") return field.items === "integer" ? "ids, by commas" : "one on each line";
  if (kind === "json") return "JSON";
  if (minimum === undefined && maximum === undefined) return "";
  const few = maximum !== undefined && maximum < 1e6;
  if (!few) return minimum === undefined ? "" : `${minimum} or more`;
  return exclusive ? `above ${minimum}, to ${maximum}` : `${minimum} to ${maximum}`;
}

/** The value that a text stands for; undefined where nothing was written. Throws RangeError with what is wrong. */
export function read(field, text) {
  if (text.trim() === "") return undefined;
  switch (field.kind) {
    case "integer":
    case "number":
      return readNumber(field, text);
    case "boolean":
      return text === "true";
    case "list":
      return readList(field, text);
    case "json":
      return readJson(text);
    default:
      return text.trim();
  }
}

function readNumber(field, text) {
  const value = Number(text);
  const isWhole = field.kind === "number" || Number.isInteger(value);
  const isLow = field.minimum !== undefined && (field.exclusive ? value <= field.minimum : value < field.minimum);
  if (!Number.isFinite(value) || !isWhole || isLow || value > (field.maximum ?? Infinity)) {
    throw new RangeError(
      `must be ${field.kind === "integer" ? "a whole number" : "a number"}${rangeOf(field) ? `, ${rangeOf(field)}` : ""}`,
    );
  }
  return value;
}

function readList(field, text) {
  if (field.items !== "integer") return text.split("\n").filter((line) => line !== "");
  const ids = text
    .split(/[\s,]+/)
    .filter(Boolean)
    .map(Number);
  if (!ids.every((id) => Number.isInteger(id) && id >= 0)) throw new RangeError("must be token ids, divided by commas");
  return ids;
}

function readJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new RangeError("must be JSON");
  }
}

/** The text that `read` makes this value of. */
export function written(field, value) {
  if (value === undefined || value === null) return "";
  if (field.kind === "list" && Array.isArray(value)) return value.join(field.items === "integer" ? ", " : "\n");
  return field.kind === "json" || typeof value === "object" ? JSON.stringify(value) : String(value);
}
