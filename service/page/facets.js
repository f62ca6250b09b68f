// The side panel: how often each value of a field occurs among what was found, to choose from.

import { boundsOf, valuesOf, withBounds, withValues } from "./filters.js";

const MAX_FIELDS = 8;
const MAX_LISTED = 12; // Numbers of more different values are chosen by a range.
const MAX_DISTINCT = 5_000; // Texts of more different values are names, not groups.
const NOT_GROUPS = new Set(["title", "text", "url", "and", "or", "not"]);
const whole = new Intl.NumberFormat("en");

// Return the names of the fields that the panel shows.
//   outline  the stored fields of a model, from /v1/models; undefined: unknown
//   size     number of documents
export function panelFields(outline, size) {
  return Object.entries(outline ?? {})
    .filter(([name, { kinds, distinct }]) => {
      if (NOT_GROUPS.has(name) || distinct < 2) return false;
      return isRange({ kinds, distinct }) || (distinct <= MAX_DISTINCT && distinct <= Math.max(size / 2, MAX_LISTED));
    })
    .slice(0, MAX_FIELDS)
    .map(([name]) => name);
}

const isRange = ({ kinds, distinct }) => kinds.length === 1 && kinds[0] === "number" && distinct > MAX_LISTED;

// Show the facets of an answer.
//   facets    of the answer by field, in the order in which they are shown
//   outline   the stored fields of the model
//   filter    the filter of the address
//   onFilter  called with another filter
//   onMore    called when the visitor wants more values than are shown
export function showFacets(target, facets, outline, filter, onFilter, onMore) {
  const focused = document.activeElement?.closest("#facets [data-key]")?.dataset.key;
  const groups = Object.entries(facets).map(([field, facet]) =>
    isRange(outline[field])
      ? rangeOf(field, facet, boundsOf(filter, field), (bounds) => onFilter(withBounds(filter, field, bounds)))
      : choicesOf(field, facet, valuesOf(filter, field), (values) => onFilter(withValues(filter, field, values)), onMore),
  );
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

function rangeOf(field, facet, bounds, onBounds) {
  const form = document.createElement("form");
  form.className = "range";
  const inputs = [
    ["gte", "from", facet.min],
    ["lte", "to", facet.max],
  ].map(([bound, word, limit]) => {
    const label = document.createElement("label");
    const input = document.createElement("input");
    input.type = "number";
    input.step = "any";
    input.name = bound;
    input.placeholder = limit ?? "";
    input.value = bounds[bound] ?? "";
    input.dataset.key = JSON.stringify([field, bound]);
    const name = document.createElement("span");
    name.textContent = word;
    label.append(name, input);
    return [label, input];
  });
  const button = document.createElement("button");
  button.textContent = "Apply";
  button.setAttribute("aria-label", `Apply the range of ${field}`);
  button.dataset.key = JSON.stringify([field]);
  form.append(...inputs.map(([label]) => label), button);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const given = inputs.filter(([, input]) => input.value !== "");
    onBounds(Object.fromEntries(given.map(([, input]) => [input.name, Number(input.value)])));
  });
  return groupOf(field, form);
}
