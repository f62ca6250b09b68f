// The side panel: how often each value of a field occurs among what was found, to choose from.

import { element } from "./dom.js";
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

const groupOf = (field, ...children) => element("fieldset", element("legend", { dir: "auto" }, field), ...children);

function choicesOf(field, facet, chosen, onValues, onMore) {
  const values = facet.values.map(({ value, count }) => [value, count]);
  // What is chosen stays visible, so that it can be taken back.
  for (const value of chosen) if (!values.some(([listed]) => listed === value)) values.unshift([value, 0]);
  const labels = values.map(([value, count]) => {
    const onchange = ({ target }) =>
      onValues(target.checked ? [...chosen, value] : chosen.filter((other) => other !== value));
    const box = { type: "checkbox", checked: chosen.includes(value), "data-key": JSON.stringify([field, value]), onchange };
    const name = element("span", { dir: "auto" }, String(value));
    return element("label", element("input", box), name, element("small", whole.format(count)));
  });
  const hasMore = facet.distinct > facet.values.length && facet.values.length < 100;
  const more = { type: "button", "aria-label": `More values of ${field}`, "data-key": JSON.stringify([field]), onclick: onMore };
  return groupOf(field, ...labels, ...(hasMore ? [element("button", more, "More values")] : []));
}

// Ranges to choose one of, and a form for any other.
function rangesGroup({ name, outline, ranges }, counts, bounds, onBounds) {
  const isChosen = ({ from, to }) =>
    bounds.gte === from && bounds.lt === to && bounds.gt === undefined && bounds.lte === undefined;
  const chosen = ranges.find(isChosen);
  const buttons = ranges.map((range, i) => {
    const isPressed = range === chosen;
    if (!counts[i].count && !isPressed) return "";
    const button = {
      type: "button", className: "choice", "aria-pressed": isPressed, "data-key": JSON.stringify([name, range.label]),
      onclick: () => onBounds(isPressed ? {} : boundsFor(range)),
    };
    return element("button", button, element("span", { dir: "auto" }, range.label), " ", element("small", whole.format(counts[i].count)));
  });
  return groupOf(name, ...buttons, formOf(name, outline, chosen ? {} : bounds, onBounds));
}

const boundsFor = ({ from, to }) => ({ ...(from !== undefined && { gte: from }), ...(to !== undefined && { lt: to }) });

// A day is a bound of times: it begins at midnight in UTC.
function formOf(name, outline, bounds, onBounds) {
  const ofTimes = isTime(outline);
  const inputs = [
    ["from", outline.min, bounds.gte],
    ["to", outline.max, ofTimes ? dayAfter(bounds.lt, -1) : bounds.lte],
  ].map(([word, limit, value]) =>
    element("input", {
      type: ofTimes ? "date" : "number", step: "any", placeholder: limit, value: value ?? "",
      "data-key": JSON.stringify([name, "", word]), "data-word": word,
    }),
  );
  const labels = inputs.map((input) => element("label", element("span", input.dataset.word), input));
  const apply = { "aria-label": `Apply the range of ${name}`, "data-key": JSON.stringify([name]) };
  const onsubmit = (event) => {
    event.preventDefault();
    const [from, to] = inputs.map(({ value }) => value);
    onBounds({
      ...(from && { gte: ofTimes ? from : Number(from) }),
      ...(to && (ofTimes ? { lt: dayAfter(to) } : { lte: Number(to) })),
    });
  };
  return element("form", { className: "range", onsubmit }, ...labels, element("button", apply, "Apply"));
}
