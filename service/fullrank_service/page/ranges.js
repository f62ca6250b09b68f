// Ranges of a field of numbers or times, for the side panel. Days begin in UTC, as in the service.

const WANTED = 6; // At most so many ranges, besides a first and a last one.
const MAX_TIME_RANGES = 6;
const DECADES_FROM = 1000; // A largest value so many times the least is divided by powers of ten.
const DAY_MS = 86_400_000;
const YEAR_DAYS = 365.25;

const format = (options) => new Intl.DateTimeFormat("en", { timeZone: "UTC", ...options });
// The units of time: from how many days on one is used, its steps, its number at a time and the reverse, its names.
const UNITS = [
  {
    minDays: 3 * YEAR_DAYS,
    days: YEAR_DAYS,
    steps: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000],
    numberOf: (at) => new Date(at).getUTCFullYear(),
    startOf: (year) => new Date(0).setUTCFullYear(year),
    name: format({ year: "numeric" }),
  },
  {
    minDays: 90,
    days: YEAR_DAYS / 12,
    steps: [1, 2, 3, 6],
    numberOf: (at) => 12 * new Date(at).getUTCFullYear() + new Date(at).getUTCMonth(),
    startOf: (month) => new Date(0).setUTCFullYear(Math.floor(month / 12), month - 12 * Math.floor(month / 12)),
    name: format({ year: "numeric", month: "short" }),
  },
  {
    minDays: 0,
    days: 1,
    steps: [1, 2, 7, 14],
    numberOf: (at) => Math.floor(at / DAY_MS),
    startOf: (day) => day * DAY_MS,
    name: format({ dateStyle: "medium" }),
  },
];

export const isTime = ({ min }) => typeof min === "string";

// Return the ranges of a field, which together hold all values: [{ from, to, label }]. A range begins at `from` and
// ends before `to`, numbers or days such as "2026-11-23"; undefined: no bound. [] if all values would be in one.
//   outline  of the field, with the bounds of its values: { min, max }
export function rangesOf(outline) {
  const { min, max } = outline;
  return isTime(outline) ? timeRanges(Date.parse(min), Date.parse(max)) : numberRanges(min, max);
}

function numberRanges(min, max) {
  const edges = [];
  if (min >= 0 && max > DECADES_FROM * Math.max(1, min)) {
    for (let edge = 1; edge <= max; edge *= 10) if (edge > min) edges.push(edge);
  } else {
    const step = niceAbove((max - min) / WANTED);
    // Rounded, because 3 × 0.1 is 0.30000000000000004.
    for (let k = Math.floor(min / step) + 1; k * step <= max; k++) edges.push(Number((k * step).toPrecision(12)));
  }
  return between(edges, (edge) => edge, {
    below: (to) => `below ${to}`,
    inside: (from, to) => `${from} to ${to}`,
    above: (from) => `${from} and more`,
  });
}

// Return the least of 1, 2, 5, 10, 20, … (or 0.5, 0.2, …) that is not below a number.
function niceAbove(number) {
  const power = 10 ** Math.floor(Math.log10(number));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= number);
}

function timeRanges(min, max) {
  const days = (max - min) / DAY_MS;
  const unit = UNITS.find(({ minDays }) => days >= minDays);
  const step = unit.steps.find((size) => days / unit.days / size <= MAX_TIME_RANGES) ?? unit.steps.at(-1);
  const edges = [];
  for (let k = Math.floor(unit.numberOf(min) / step) + 1; k * step <= unit.numberOf(max); k++) {
    edges.push(unit.startOf(k * step));
  }
  const name = (at) => unit.name.format(at);
  return between(edges, dayOf, {
    below: (to) => `before ${name(to)}`,
    inside: (from, to) => unit.name.formatRange(from, to - 1),
    above: (from) => `since ${name(from)}`,
  });
}

// Return the ranges between the edges, and those before the first and from the last one on.
function between(edges, valueOf, { below, inside, above }) {
  if (!edges.length) return [];
  const inner = edges.slice(1).map((to, i) => ({
    from: valueOf(edges[i]),
    to: valueOf(to),
    label: inside(edges[i], to),
  }));
  const [first, last] = [edges[0], edges.at(-1)];
  return [{ to: valueOf(first), label: below(first) }, ...inner, { from: valueOf(last), label: above(last) }];
}

const dayOf = (at) => new Date(at).toISOString().slice(0, 10);

// Return the day some days after a day; undefined for another text, which an address may have.
export function dayAfter(day, days = 1) {
  const at = Date.parse(day);
  return Number.isNaN(at) ? undefined : dayOf(at + days * DAY_MS);
}

// Return the ranges as the service takes them: the bounds of times have an offset from UTC.
export const asked = (ranges) => ranges.map(({ from, to }) => ({ from: moment(from), to: moment(to) }));
const moment = (bound) => (typeof bound === "string" ? `${bound}T00:00:00Z` : bound);
