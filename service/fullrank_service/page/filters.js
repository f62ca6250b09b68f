// Filters of a search as the side panel reads and writes them: conditions on fields, as JSON in the address.

import { dayAfter } from "./ranges.js";

const BOUNDS = new Set(["gt", "gte", "lt", "lte"]);
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// Return the conditions of a filter by field; none if the text is not a filter.
function conditionsOf(text) {
  try {
    const filter = JSON.parse(text || "{}");
    return isObject(filter) ? filter : {};
  } catch {
    return {};
  }
}

// Return the values that a field must have, one of them.
export function valuesOf(text, field) {
  const condition = conditionsOf(text)[field];
  if (condition === undefined) return [];
  if (isObject(condition)) return Array.isArray(condition.in) ? condition.in : [];
  return Array.isArray(condition) ? [] : [condition]; // "and" and "or" have a list of filters
}

// Return the bounds of a field: { gte, gt, lte, lt }, each of which may be missing.
export function boundsOf(text, field) {
  const condition = conditionsOf(text)[field];
  return isObject(condition) ? condition : {};
}

// Return the filter with another condition on a field.
export function withValues(text, field, values) {
  return withCondition(text, field, values.length > 1 ? { in: values } : values[0]);
}

export function withBounds(text, field, bounds) {
  return withCondition(text, field, Object.keys(bounds).length ? bounds : undefined);
}

// Return the filter without conditions on a field.
export const without = (text, field) => withCondition(text, field, undefined);

export const hasCondition = (text, field) => Object.hasOwn(conditionsOf(text), field);

// Return the parts of a filter that a visitor can take back: [{ label, rest }], each in words and the filter without it.
// What is more than values and bounds of a field is said as JSON.
export function partsOf(text) {
  const conditions = Object.entries(conditionsOf(text));
  if (!conditions.length) return text ? [{ label: text, rest: "" }] : [];
  return conditions.flatMap(([field, condition]) => {
    const values = valuesOf(text, field);
    if (!values.length) return [{ label: `${field}: ${describe(condition)}`, rest: without(text, field) }];
    return values.map((value) => {
      const others = values.filter((other) => other !== value);
      return { label: `${field}: ${value}`, rest: withValues(text, field, others) };
    });
  });
}

function describe(condition) {
  const { gt, gte = gt, lt, lte } = condition;
  const names = Object.keys(condition);
  if (!names.length || !names.every((name) => BOUNDS.has(name))) return JSON.stringify(condition);
  // A day that is left out ends the range the day before.
  const to = lte ?? (/^\d{4}-\d\d-\d\d$/.test(lt) ? dayAfter(lt, -1) : lt);
  if (gte === undefined) return to === lt ? `below ${to}` : `up to ${to}`;
  if (to === undefined) return gt === undefined ? `from ${gte}` : `above ${gt}`;
  return `${gte} to ${to}`;
}

function withCondition(text, field, condition) {
  const filter = { ...conditionsOf(text) };
  if (condition === undefined) delete filter[field];
  else filter[field] = condition;
  return Object.keys(filter).length ? JSON.stringify(filter) : "";
}
