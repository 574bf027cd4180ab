// Prometheus's text format, as far as Tane's metrics use it. Knows lines; knows no names.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** [{name, labels, value}] */
export function samplesOf(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const found = LINE.exec(line);
    if (!found) continue;
    const labels = Object.fromEntries(
      [...(found[2] ?? "").matchAll(LABEL)].map(([, name, value]) => [
        name,
        value.replace(/\\(.)/g, (_, letter) => (letter === "n" ? "\n" : letter)),
      ]),
    );
    samples.push({ name: found[1], labels, value: found[3] === "+Inf" ? Infinity : Number(found[3]) });
  }
  return samples;
}

/** The sum of the samples of this name that have these labels. */
export function total(samples, name, labels = {}) {
  const wanted = Object.entries(labels);
  return samples.reduce(
    (sum, sample) =>
      sample.name === name && wanted.every(([key, value]) => sample.labels[key] === value) ? sum + sample.value : sum,
    0,
  );
}

/** A quantile of what a histogram counted between two scrapes, in its unit; null where it counted nothing. */
export function quantile(before, after, name, share, labels = {}) {
  const bounds = [
    ...new Set(after.filter((sample) => sample.name === `${name}_bucket`).map((sample) => sample.labels.le)),
  ];
  const counts = bounds
    .map((le) => [
      le === "+Inf" ? Infinity : Number(le),
      total(after, `${name}_bucket`, { ...labels, le }) - total(before, `${name}_bucket`, { ...labels, le }),
    ])
    .sort(([a], [b]) => a - b);
  const all = counts.at(-1)?.[1] ?? 0;
  if (all <= 0) return null;
  let [floor, under] = [0, 0];
  for (const [bound, count] of counts) {
    if (count >= share * all)
      return bound === Infinity
        ? floor
        : floor + ((bound - floor) * (share * all - under)) / Math.max(count - under, 1e-9);
    [floor, under] = [bound, count];
  }
  return floor;
}
