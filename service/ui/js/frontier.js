// Size and speed of models against their quality, as plots side by side. Knows names and figures.
// Always: a model stands at one height in all plots, with its name beside it; names cover neither one another nor points while
// there is room.

import { bytes, el, figure, svg } from "./dom.js";

const [WIDTH, LEFT, RIGHT, TOP, BELOW] = [340, 44, 330, 38, 64];
const ROOM = 130;
/** From the best to the worst point, at least. */
const LINE = 15;
const [LETTER, LONGEST] = [5.9, 26];
/** A letter's width, and the letters of a name. */
const GAP = 9;
const PLOTS = [
  { title: "size", of: (model) => model.bytes, written: bytes },
  { title: "tokens/s", of: (model) => model.evaluation.tokens_per_second, written: figure },
];
const quality = (model) => model.evaluation.perplexity;

/** `models` as `/info` tells of them, each with its perplexity; a plot takes two that have its figure. */
export function frontierOf(models) {
  const bottom = TOP + Math.max(ROOM, LINE * models.length);
  // Perplexities are compared by their ratio: they are exponentials of what was measured.
  const height = scale(
    models.map((model) => Math.log(quality(model))),
    bottom,
    TOP,
  );
  const plots = PLOTS.map(({ title, of, written }) => {
    const known = models.filter((model) => typeof of(model) === "number");
    const across = scale(known.map(of), LEFT + 18, RIGHT - 18);
    const points = known.map((model) => ({
      name: model.name,
      value: written(of(model)),
      quality: figure(quality(model), 4),
      x: across(of(model)),
      y: height(Math.log(quality(model))),
    }));
    return points.length > 1 ? plot(title, points, bottom) : null;
  });
  return el("div", { class: "frontier" }, ...plots);
}

function plot(title, points, bottom) {
  const floor = bottom + BELOW - 36;
  const told = points.map((point) => `${point.name}: ${point.value}, ${point.quality}`).join("; ");
  const by = (axis) => [...points].sort((a, b) => a[axis] - b[axis]);
  const [best, worst] = [by("y").at(-1), by("y")[0]];
  const [least, most] = [by("x")[0], by("x").at(-1)];
  const text = (kind, x, y, anchor, content) => svg("text", { class: kind, x, y, "text-anchor": anchor, text: content });
  const labels = labelled(by("y"), bottom);
  return svg(
    "svg",
    {
      viewBox: `0 0 ${WIDTH} ${bottom + BELOW}`,
      role: "img",
      "aria-label": `Perplexity, which is better the lower, against ${title} of the served models. ${told}`,
    },
    svg("path", { class: "axis", d: `M${LEFT} 8V${floor}H${RIGHT}` }),
    text("title", LEFT + 6, 16, "start", "perplexity"),
    text("title", (LEFT + RIGHT) / 2, floor + 30, "middle", title),
    ...(best.y === worst.y ? [best] : [best, worst]).map((each) =>
      text("tick", LEFT - 6, each.y + 4, "end", each.quality),
    ),
    ...(least.x === most.x ? [least] : [least, most]).map((each) =>
      text("tick", each.x, floor + 15, "middle", each.value),
    ),
    ...labels
      .filter(({ y, labelY }) => labelY !== y)
      .map(({ x, y, labelX, labelY }) => svg("path", { class: "leader", d: `M${x} ${y}L${labelX} ${labelY}` })),
    ...points.map((point) => svg("circle", { cx: point.x, cy: point.y, r: 5 })),
    ...labels.map(({ labelX, labelY, x, shown }) =>
      text("name", labelX, labelY + 4, labelX > x ? "start" : "end", shown),
    ),
  );
}

/** The points with their names as shown and where these stand: beside them, or as near as the others leave room. */
function labelled(points, bottom) {
  const taken = points.map(({ x, y }) => ({ left: x - 6, right: x + 6, top: y - 6, bottom: y + 6 }));
  return points.map((point) => {
    const shown = point.name.length > LONGEST ? `${point.name.slice(0, LONGEST - 1)}…` : point.name;
    const places = placesAround(point, LETTER * shown.length, bottom);
    const place = places.find(({ box }) => !taken.some((other) => overlap(box, other))) ?? places[0];
    taken.push(place.box);
    return { ...point, ...place, shown };
  });
}

/** Where a name of this width may stand inside the plot, nearest first. */
function placesAround({ x, y }, width, bottom) {
  const steps = Math.ceil((bottom - TOP) / LINE);
  const heights = [...Array(2 * steps + 1).keys()].map((index) => y + LINE * Math.ceil(index / 2) * (-1) ** index);
  const sides = x < (LEFT + RIGHT) / 2 ? [1, -1] : [-1, 1];
  const places = heights.flatMap((labelY) =>
    sides.map((side) => {
      const labelX = x + side * GAP;
      const [left, right] = side > 0 ? [labelX, labelX + width] : [labelX - width, labelX];
      return { labelX, labelY, box: { left, right, top: labelY - LINE / 2, bottom: labelY + LINE / 2 } };
    }),
  );
  const within = ({ labelY, box }) =>
    box.left > LEFT && box.right < WIDTH && labelY >= TOP - LINE / 2 && labelY <= bottom + LINE;
  return [...places.filter(within), places[0]];
}

const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

function scale(values, from, to) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  return (value) => (most === least ? (from + to) / 2 : from + ((to - from) * (value - least)) / (most - least));
}
