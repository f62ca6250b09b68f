// Filters of a search as the side panel reads and writes them: conditions on fields, as JSON in the address.

const SIGNS = { gt: ">", gte: "≥", lt: "<", lte: "≤" };
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
  if (!isObject(condition)) return [condition];
  return Array.isArray(condition.in) ? condition.in : [];
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

// Say a filter in words; as JSON where it has more than conditions on fields.
export function describe(text) {
  const conditions = Object.entries(conditionsOf(text));
  if (!conditions.length) return text;
  return conditions.map(([field, condition]) => describeOne(field, condition)).join(", ");
}

function describeOne(field, condition) {
  if (!isObject(condition)) return `${field}: ${condition}`;
  if (Array.isArray(condition.in)) return `${field}: ${condition.in.join(" or ")}`;
  const bounds = Object.entries(condition);
  if (bounds.length && bounds.every(([name]) => name in SIGNS)) {
    return bounds.map(([name, value]) => `${field} ${SIGNS[name]} ${value}`).join(", ");
  }
  return `${field}: ${JSON.stringify(condition)}`;
}

function withCondition(text, field, condition) {
  const filter = { ...conditionsOf(text) };
  if (condition === undefined) delete filter[field];
  else filter[field] = condition;
  return Object.keys(filter).length ? JSON.stringify(filter) : "";
}
