// A row of weights pruned in three ways, as its inputs come to move together. Knows numbers alone.
// Always: the three prune equally many weights of the same row, and are judged on the inputs that the Hessian was made from.

export const [WIDTH, SAMPLES] = [64, 512];
const DAMPING = 0.01;
/** Of the mean diagonal. */

/** Numbers between 0 and 1 from a small seed: for artificial inputs, not for tokens. */
function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function normals(seed) {
  const next = random(seed);
  return () => Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
}

/** Weights and inputs c·z + (1 − c)·s∘e: z common to all inputs, e each one's own, s its spread. */
export function trial(seed, shared) {
  const normal = normals(seed);
  const spread = Float64Array.from({ length: WIDTH }, () => Math.exp(normal()));
  const weights = Float64Array.from({ length: WIDTH }, normal);
  const inputs = Array.from({ length: SAMPLES }, () => {
    const common = normal();
    return Float64Array.from(spread, (own) => shared * common + (1 - shared) * own * normal());
  });
  return { weights, inputs, inverse: inverted(hessian(inputs)) };
}

function hessian(inputs) {
  const matrix = Array.from({ length: WIDTH }, () => new Float64Array(WIDTH));
  for (const input of inputs)
    for (let row = 0; row < WIDTH; row += 1)
      for (let column = 0; column < WIDTH; column += 1)
        matrix[row][column] += (2 * input[row] * input[column]) / SAMPLES;
  const mean = matrix.reduce((sum, row, index) => sum + row[index], 0) / WIDTH;
  for (let index = 0; index < WIDTH; index += 1) matrix[index][index] += DAMPING * mean;
  return matrix;
}

/** Of a positive definite matrix, by Gauss and Jordan. */
function inverted(matrix) {
  const size = matrix.length;
  const work = matrix.map((row, index) =>
    Float64Array.from([...row, ...Array.from({ length: size }, (_, column) => Number(column === index))]),
  );
  for (let pivot = 0; pivot < size; pivot += 1) {
    const scale = work[pivot][pivot];
    for (let column = 0; column < 2 * size; column += 1) work[pivot][column] /= scale;
    for (let row = 0; row < size; row += 1) {
      const factor = work[row][pivot];
      if (row !== pivot && factor !== 0)
        for (let column = 0; column < 2 * size; column += 1) work[row][column] -= factor * work[pivot][column];
    }
  }
  return work.map((row) => row.slice(size));
}

function withoutSmallest(weights, scores, count) {
  const order = Array.from(scores.keys()).sort((a, b) => scores[a] - scores[b] || a - b);
  const pruned = Float64Array.from(weights);
  for (const index of order.slice(0, count)) pruned[index] = 0;
  return pruned;
}

export function byMagnitude({ weights }, count) {
  return withoutSmallest(weights, weights.map(Math.abs), count);
}

/** By w²/(2·[H⁻¹]ᵢᵢ), with nothing to make up for it. */
export function bySaliency({ weights, inverse }, count) {
  return withoutSmallest(
    weights,
    weights.map((weight, index) => (weight * weight) / (2 * inverse[index][index])),
    count,
  );
}

/** Optimal Brain Surgeon (Hassibi and Stork 1993): one weight after the other, the rest making up for each. */
export function bySurgery({ weights, inverse }, count) {
  const left = Float64Array.from(weights);
  const rest = inverse.map((row) => Float64Array.from(row));
  const out = new Set();
  while (out.size < count) {
    let least = -1,
      price = Infinity;
    for (let index = 0; index < WIDTH; index += 1) {
      const cost = (left[index] * left[index]) / (2 * rest[index][index]);
      if (!out.has(index) && cost < price) [least, price] = [index, cost];
    }
    const pivot = rest[least][least];
    const column = Float64Array.from(rest[least]);
    const step = left[least] / pivot;
    for (let index = 0; index < WIDTH; index += 1) {
      left[index] -= step * column[index];
      for (let other = 0; other < WIDTH; other += 1) rest[index][other] -= (column[index] * column[other]) / pivot;
    }
    out.add(least);
    for (const index of out) left[index] = 0;
  }
  return left;
}

/** How far the output moved, as a share of itself. */
export function deviation({ weights, inputs }, pruned) {
  let moved = 0,
    whole = 0;
  for (const input of inputs) {
    let [output, change] = [0, 0];
    for (let index = 0; index < WIDTH; index += 1)
      [output, change] = [
        output + input[index] * weights[index],
        change + input[index] * (pruned[index] - weights[index]),
      ];
    [whole, moved] = [whole + output * output, moved + change * change];
  }
  return Math.sqrt(moved / whole);
}
