// The e-value of an experiment over time, as a line on a logarithmic scale.

const SPACE = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [640, 220, 44, 12, 14, 26];
const DECIDES = 20;
const day = new Intl.DateTimeFormat("en", { dateStyle: "medium" });

//   found  an experiment: `started` as a date, `e_values` as [seconds since 1970, e-value] by time
export function eValuesOf({ started, e_values }) {
  const begin = Date.parse(started) / 1000;
  const points = [[begin, 1], ...e_values];
  const [end, last] = points.at(-1);
  const values = points.map(([, value]) => value);
  const low = Math.log(Math.min(0.5, ...values)) - 0.2;
  const high = Math.log(Math.max(DECIDES, ...values)) + 0.4;
  const x = (at) => LEFT + ((WIDTH - LEFT - RIGHT) * (at - begin)) / Math.max(end - begin, 1);
  const y = (value) => TOP + ((HEIGHT - TOP - BOTTOM) * (high - Math.log(value))) / (high - low);

  const svg = part("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "e-values", role: "img" });
  svg.setAttribute(
    "aria-label",
    `The e-value over ${e_values.length} moments, from 1 on ${day.format(1000 * begin)} ` +
      `to ${last.toPrecision(3)} on ${day.format(1000 * end)}; it decides at ${DECIDES}.`,
  );
  for (const value of [1, DECIDES]) {
    const kind = value === DECIDES ? "decides" : "start";
    svg.append(part("line", { class: kind, x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }));
    svg.append(label(String(value), LEFT - 8, y(value) + 4, "end"));
  }
  // An e-value stays until the next vote.
  const [first, ...rest] = points;
  const steps = rest.map(([at, value]) => `H${x(at).toFixed(1)}V${y(value).toFixed(1)}`);
  svg.append(part("path", { d: `M${x(first[0])} ${y(first[1]).toFixed(1)}${steps.join("")}` }));
  svg.append(label(day.format(1000 * begin), LEFT, HEIGHT - 6, "start"));
  svg.append(label(day.format(1000 * end), WIDTH - RIGHT, HEIGHT - 6, "end"));
  return svg;
}

function label(text, x, y, anchor) {
  const made = part("text", { x, y, "text-anchor": anchor });
  made.textContent = text;
  return made;
}

function part(name, attributes) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
