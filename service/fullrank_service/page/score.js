// A score in pictures and numbers: its bar, its parts, the words behind it.

import { element } from "./dom.js";

const PARTS = ["dense", "lexical", "bias"];
// A bar is log(1 + score) long, and full at 100 points. This scale is fixed: the same score has the
// same length in every answer and for every model, so a weak answer looks weak. A linear scale would
// need the highest possible score, which no model has: cosines end at 1, BM25 reaches 50.
const FULL_SCORE = 100;
const AXIS = [1, 10, 100];

const decimal = new Intl.NumberFormat("en", {
  minimumFractionDigits: 2,
  maximumFractionDigits: 2,
  signDisplay: "negative",
});
const count = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
export const formatNumber = (value) => decimal.format(value);

// Return the length of a bar in percent.
function lengthOf(score) {
  return 100 * Math.min(1, Math.log1p(Math.max(0, score)) / Math.log1p(FULL_SCORE));
}

// Fill the scale above a list of hits.
export function showAxis(target) {
  for (const value of AXIS) {
    const label = element("span", String(value));
    label.style.left = `${lengthOf(value)}%`;
    target.append(label);
  }
}

// Draw the bar: solid up to the score, divided in proportion to the positive parts; striped where
// negative parts take something off.
export function showBar(target, explanation) {
  const values = PARTS.map((part) => [part, explanation[part]]);
  const positive = values.reduce((sum, [, value]) => sum + Math.max(value, 0), 0);
  const score = values.reduce((sum, [, value]) => sum + value, 0);
  let from = 0;
  for (const [part, value] of values) {
    if (value <= 0) continue;
    const width = (lengthOf(positive) * value) / positive;
    target.append(segment(part, from, width));
    from += width;
  }
  const off = Math.max(lengthOf(positive), lengthOf(-score)) - lengthOf(score);
  if (off > 0.05) target.append(segment("minus", lengthOf(score), off));
  for (const value of AXIS.slice(0, -1)) target.append(segment("tick", lengthOf(value)));
  target.setAttribute("aria-label", values.map(([part, value]) => `${part} ${formatNumber(value)}`).join(", "));
}

function segment(className, left, width) {
  const made = element("i", { className });
  made.style.left = `${left}%`;
  if (width !== undefined) made.style.width = `${width}%`;
  return made;
}

export function showParts(target, explanation) {
  for (const part of PARTS) {
    const value = explanation[part];
    const item = { "data-part": part, "data-value": value };
    const name = `${part[0].toUpperCase()}${part.slice(1)} `;
    target.append(element("span", item, element("i", { className: `dot ${part}` }), name, element("b", formatNumber(value))));
  }
  const { after_query: times = 0, in_all: chosen = 0 } = explanation.clicks ?? {};
  if (times) target.append(element("span", `clicked ${count.format(times)} times for this query`));
  if (chosen) target.append(element("span", `clicked ${count.format(chosen)} times in all`));
}

export function showWords(target, words) {
  target.hidden = !words.length;
  for (const { word, dense, lexical } of words) {
    const className = dense + lexical < 0 ? "minus" : "";
    const title = `dense ${formatNumber(dense)}, lexical ${formatNumber(lexical)}`;
    const item = element("li", { className, title }, word, element("small", formatNumber(dense + lexical)));
    item.style.setProperty("--share", `${(100 * Math.abs(dense)) / (Math.abs(dense) + Math.abs(lexical) || 1)}%`);
    target.append(item);
  }
}
