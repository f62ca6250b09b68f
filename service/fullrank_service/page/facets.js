// The side panel: how often each value of a field occurs among what was found, to choose from.

import { boundsOf, valuesOf, withBounds, withValues } from "./filters.js";
import { dayAfter, isTime, rangesOf } from "./ranges.js";

const MAX_FIELDS = 8;
const MAX_LISTED = 12; // Numbers and times of more different values are chosen by ranges.
const MAX_DISTINCT = 5_000; // Texts of more different values are names, not groups.
const NOT_GROUPS = new Set(["title", "text", "url", "image", "and", "or", "not"]);
const whole = new Intl.NumberFormat("en");

// Return the fields that the panel shows: [{ name, ranges, outline }]; `ranges` as in ranges.js, undefined for a field
// whose values are listed one by one.
//   outlines  the stored fields of a model, from /v1/models; undefined: unknown
//   size      number of documents
export function panelOf(outlines, size) {
  return Object.entries(outlines ?? {})
    .map(([name, outline]) => ({ name, outline, ranges: isRanged(outline) ? rangesOf(outline) : undefined }))
    .filter(({ name, outline: { distinct }, ranges }) => {
      if (NOT_GROUPS.has(name) || distinct < 2) return false;
      return ranges || (distinct <= MAX_DISTINCT && distinct <= Math.max(size / 2, MAX_LISTED));
    })
    .slice(0, MAX_FIELDS);
}

const isRanged = ({ min, distinct }) => min !== null && distinct > MAX_LISTED;

// Return the counts of the fields of the panel, by name, from the answers that counted them.
export function countsOf(panel, replies) {
  return Object.fromEntries(
    panel.map(({ name, ranges }) => [
      name,
      replies.map((reply) => (ranges ? reply.facet_ranges : reply.facets)?.[name]).find(Boolean),
    ]),
  );
}

// Show the panel.
//   panel     its fields
//   counts    of the values or ranges, by the name of the field
//   filter    the filter of the address
//   onFilter  called with another filter
//   onMore    called when the visitor wants more values than are shown
export function showFacets(target, panel, counts, filter, onFilter, onMore) {
  const focused = document.activeElement?.closest("#facets [data-key]")?.dataset.key;
  const groups = panel.map((field) => {
    const { name, ranges } = field;
    return ranges
      ? rangesGroup(field, counts[name], boundsOf(filter, name), (bounds) => onFilter(withBounds(filter, name, bounds)))
      : choicesOf(name, counts[name], valuesOf(filter, name), (values) => onFilter(withValues(filter, name, values)), onMore);
  });
  target.replaceChildren(...groups);
  // The control that was just used is a new element.
  if (focused) [...target.querySelectorAll("[data-key]")].find(({ dataset }) => dataset.key === focused)?.focus();
}

function groupOf(field, ...children) {
  const group = document.createElement("fieldset");
  const legend = document.createElement("legend");
  legend.textContent = field;
  group.append(legend, ...children);
  return group;
}

function choicesOf(field, facet, chosen, onValues, onMore) {
  const values = facet.values.map(({ value, count }) => [value, count]);
  // What is chosen stays visible, so that it can be taken back.
  for (const value of chosen) if (!values.some(([listed]) => listed === value)) values.unshift([value, 0]);
  const group = groupOf(field);
  for (const [value, count] of values) {
    const label = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = chosen.includes(value);
    box.dataset.key = JSON.stringify([field, value]);
    box.addEventListener("change", () =>
      onValues(box.checked ? [...chosen, value] : chosen.filter((other) => other !== value)),
    );
    const name = document.createElement("span");
    name.textContent = String(value);
    name.dir = "auto";
    const number = document.createElement("small");
    number.textContent = whole.format(count);
    label.append(box, name, number);
    group.append(label);
  }
  if (facet.distinct > facet.values.length && facet.values.length < 100) {
    const more = document.createElement("button");
    more.type = "button";
    more.textContent = "More values";
    more.setAttribute("aria-label", `More values of ${field}`);
    more.dataset.key = JSON.stringify([field]);
    more.addEventListener("click", onMore);
    group.append(more);
  }
  return group;
}

// Ranges to choose one of, and a form for any other.
function rangesGroup({ name, outline, ranges }, counts, bounds, onBounds) {
  const group = groupOf(name);
  const isChosen = ({ from, to }) =>
    bounds.gte === from && bounds.lt === to && bounds.gt === undefined && bounds.lte === undefined;
  const chosen = ranges.find(isChosen);
  ranges.forEach((range, i) => {
    const { count } = counts[i];
    if (!count && range !== chosen) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "choice";
    button.setAttribute("aria-pressed", range === chosen);
    button.dataset.key = JSON.stringify([name, range.label]);
    const label = document.createElement("span");
    label.textContent = range.label;
    const number = document.createElement("small");
    number.textContent = whole.format(count);
    button.append(label, " ", number);
    button.addEventListener("click", () => onBounds(range === chosen ? {} : boundsFor(range)));
    group.append(button);
  });
  group.append(formOf(name, outline, chosen ? {} : bounds, onBounds));
  return group;
}

const boundsFor = ({ from, to }) => ({ ...(from !== undefined && { gte: from }), ...(to !== undefined && { lt: to }) });

// A day is a bound of times: it begins at midnight in UTC.
function formOf(name, outline, bounds, onBounds) {
  const form = document.createElement("form");
  form.className = "range";
  const ofTimes = isTime(outline);
  const inputs = [
    ["from", outline.min, bounds.gte],
    ["to", outline.max, ofTimes ? dayAfter(bounds.lt, -1) : bounds.lte],
  ].map(([word, limit, value]) => {
    const label = document.createElement("label");
    const input = document.createElement("input");
    input.type = ofTimes ? "date" : "number";
    input.step = "any";
    input.placeholder = limit;
    input.value = value ?? "";
    input.dataset.key = JSON.stringify([name, "", word]);
    const text = document.createElement("span");
    text.textContent = word;
    label.append(text, input);
    return [label, input];
  });
  const button = document.createElement("button");
  button.textContent = "Apply";
  button.setAttribute("aria-label", `Apply the range of ${name}`);
  button.dataset.key = JSON.stringify([name]);
  form.append(...inputs.map(([label]) => label), button);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const [from, to] = inputs.map(([, input]) => input.value);
    onBounds({
      ...(from && { gte: ofTimes ? from : Number(from) }),
      ...(to && (ofTimes ? { lt: dayAfter(to) } : { lte: Number(to) })),
    });
  });
  return form;
}
