// From a row of logits to the token that is drawn, stage by stage, in the server's order and with its definitions:
// bias, mask, temperature, top-k, top-p, min-p, and a draw in the order of ids.
// Knows numbers alone. Always: weights are e^((z − max)/τ) in float64, summed in the order of ids; ties rank by id.

const LISTED = 12;

/** Float32 logits from the base64 of a `/logits` answer. */
export function rowFrom(base64) {
  const text = atob(base64);
  const raw = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index += 1) raw[index] = text.charCodeAt(index);
  const view = new DataView(raw.buffer);
  const row = new Float32Array(raw.length / 4);
  for (let index = 0; index < row.length; index += 1) row[index] = view.getFloat32(4 * index, true);
  return row;
}

/** Ids by logit descending, then id ascending. A float's bits order like it once its sign is mended. */
export function ranking(row) {
  const bits = new Uint32Array(Float32Array.from(row, (logit) => logit + 0).buffer);
  const keys = new Float64Array(row.length);
  for (let id = 0; id < row.length; id += 1) {
    const falling = bits[id] >>> 31 ? bits[id] : bits[id] ^ 0x7fffffff;
    keys[id] = (falling >>> 0) * 2 ** 20 + id;
  }
  keys.sort();
  return Uint32Array.from(keys, (key) => key % 2 ** 20);
}

function weigh(row, temperature) {
  let peak = -Infinity;
  for (const logit of row) if (logit > peak) peak = logit;
  const weights = new Float64Array(row.length);
  for (let id = 0; id < row.length; id += 1) weights[id] = Math.exp((row[id] - peak) / temperature);
  return weights;
}

function totalOf(weights) {
  let total = 0;
  for (const weight of weights) total += weight;
  return total;
}

/** In nats: log W − Σ w·s / W, where w = e^s, which is here −Σ p·log p. */
export function entropyOf(weights) {
  const total = totalOf(weights);
  let sum = 0;
  for (const weight of weights) if (weight > 0) sum += weight * Math.log(weight);
  return Math.log(total) - sum / total;
}

function edited(row, bias) {
  const changed = Float32Array.from(row);
  for (const [id, value] of bias) changed[id] += Math.fround(value);
  return changed;
}

function masked(row, banned) {
  const changed = Float32Array.from(row);
  for (const id of banned) changed[id] = -Infinity;
  return changed;
}

class Stages {
  constructor(size) {
    this.list = [];
    this.given = new Float64Array(size);
    this.givenTotal = 0;
  }

  add(name, weights, order) {
    let candidates = 0,
      total = 0,
      share = 0,
      dropped = false;
    for (let id = 0; id < weights.length; id += 1) {
      total += weights[id];
      if (weights[id] > 0) [candidates, share] = [candidates + 1, share + this.given[id]];
      else dropped ||= this.given[id] > 0;
    }
    const top = [];
    for (const id of order) {
      if (top.length === LISTED) break;
      if (weights[id] > 0) top.push({ id, probability: weights[id] / total });
    }
    this.list.push({ name, candidates, total, top, weights, mass: dropped ? share / this.givenTotal : 1 });
    [this.given, this.givenTotal] = [weights, total];
  }

  keepFirst(name, order, count) {
    const weights = new Float64Array(this.given.length);
    for (let place = 0; place < count; place += 1) weights[order[place]] = this.given[order[place]];
    this.add(name, weights, order);
  }
}

function reaching(weights, order, target) {
  let reached = 0,
    count = 0;
  while (count < order.length && reached < target) [reached, count] = [reached + weights[order[count]], count + 1];
  return count;
}

/**
 * What each stage that is switched on leaves of `row`, and what the draw takes of the last.
 * `draw`: {temperature, top_k, top_p, min_p, uniform, bias: [[id, value]], banned: [id]}.
 */
export function explain(row, draw, order = ranking(row)) {
  const stages = new Stages(row.length);
  stages.add("model", weigh(row, 1), order);
  const entropy = entropyOf(stages.given);
  if (draw.bias.length) {
    row = edited(row, draw.bias);
    order = ranking(row);
    stages.add("bias", weigh(row, 1), order);
  }
  if (draw.banned.length) {
    row = masked(row, draw.banned);
    order = ranking(row);
    stages.add("mask", weigh(row, 1), order);
  }
  if (draw.temperature === 0) return { entropy, uniform: null, stages: stages.list, chosen: order[0], row, order };
  if (draw.temperature !== 1) stages.add("temperature", weigh(row, draw.temperature), order);
  if (draw.top_k > 0) stages.keepFirst("top_k", order, Math.min(draw.top_k, order.length));
  if (draw.top_p < 1) stages.keepFirst("top_p", order, reaching(stages.given, order, draw.top_p * stages.givenTotal));
  if (draw.min_p > 0)
    stages.add(
      "min_p",
      stages.given.map((weight) => (weight >= draw.min_p ? weight : 0)),
      order,
    );
  return {
    entropy,
    uniform: draw.uniform,
    stages: stages.list,
    chosen: drawnFrom(stages.given, draw.uniform),
    row,
    order,
  };
}

/** The first id, ascending, whose running sum exceeds u·total (inverse transform over ids). */
function drawnFrom(weights, uniform) {
  const target = uniform * totalOf(weights);
  let sum = 0;
  for (let id = 0; id < weights.length; id += 1) {
    sum += weights[id];
    if (sum > target) return id;
  }
  return weights.length - 1;
}

/** Entropy of softmax(z/τ) for each τ. */
export function entropies(row, temperatures) {
  return temperatures.map((temperature) => entropyOf(weigh(row, temperature)));
}
