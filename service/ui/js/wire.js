// JSON as it travels. A seed may be as large as 2^63 − 1, which no number of JavaScript holds exactly.
// Always: seeds are text on this side, and numbers on the other, digit for digit.

const SEED = /^(0|[1-9][0-9]{0,18})$/;
const MOST_SEED = (1n << 63n) - 1n;

export function isSeed(text) {
  return SEED.test(text) && BigInt(text) <= MOST_SEED;
}

/** A body of `/generate` as JSON. */
export function toJson(fields) {
  const { seed, ...rest } = fields;
  const body = JSON.stringify(rest);
  if (seed === undefined) return body;
  if (!isSeed(seed)) throw new RangeError("a seed is a whole number up to 2^63 − 1");
  return `${body.slice(0, -1)}${body === "{}" ? "" : ","}"seed":${seed}}`;
}

/** What the server sent. Inside of strings quotes are escaped, so that only names match. */
export function fromJson(text) {
  return JSON.parse(text.replace(/"seed":(\d+)/g, '"seed":"$1"'));
}
