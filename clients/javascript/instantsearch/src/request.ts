// From the parameters of a query of InstantSearch to a search.

import type { SearchReply, SearchRequest } from "fullrank-client";
import { aroundOf } from "./geo.js";

/** What InstantSearch and its helper send, as far as it has a meaning here. */
export interface Params {
  query?: string;
  page?: number;
  hitsPerPage?: number;
  offset?: number;
  length?: number;
  facets?: string | readonly string[];
  maxValuesPerFacet?: number;
  facetFilters?: FacetFilters;
  numericFilters?: FacetFilters;
  /** A filter of Fullrank, as JSON. */
  filters?: string;
  attributesToRetrieve?: readonly string[];
  attributesToHighlight?: readonly string[];
  attributesToSnippet?: readonly string[];
  snippetEllipsisText?: string;
  highlightPreTag?: string;
  highlightPostTag?: string;
  userToken?: string;
  analytics?: boolean;
  facetName?: string;
  facetQuery?: string;
  maxFacetHits?: number;
  /** A point, "latitude,longitude". */
  aroundLatLng?: string;
  /** Metres around it; without a number everywhere. */
  aroundRadius?: number | "all";
  insideBoundingBox?: unknown;
  insidePolygon?: unknown;
  aroundLatLngViaIP?: boolean;
  /** Fields of a search that InstantSearch has no word for, such as `boost` and `match`. */
  fullrank?: Partial<SearchRequest>;
}

type FacetFilters = string | readonly (string | readonly string[])[];
type Value = string | number | boolean;
type Filter = Record<string, unknown>;

/** What earlier answers told about the fields of a model. */
export interface Learned {
  kinds: Map<string, Set<string>>;
  texts: readonly string[];
  isFixed: boolean;
}

const MAX_HIGHLIGHTED = 8;
// The longest part of a field that the service marks.
const MARKED_WORDS = 200;

export function searchOf(
  model: string,
  sort: NonNullable<SearchRequest["sort"]>,
  params: Params,
  known: Learned,
  place: string,
): SearchRequest {
  const { limit, offset } = pageOf(params);
  const query = params.query ?? "";
  const { within, near } = aroundOf(params, place);
  const conditions = [...conditionsOf(params, known), ...within];
  const fields = params.attributesToRetrieve?.filter((name) => name !== "*");
  const marked = limit && query.trim() ? [...new Set([...highlighted(params, known), ...snippetsOf(params).keys()])] : [];
  return {
    ...(model && { model }),
    query,
    limit,
    offset,
    sort: [...sort, ...near],
    facets: typeof params.facets === "string" ? [params.facets] : [...(params.facets ?? [])],
    facet_limit: params.maxValuesPerFacet ?? 10,
    ...(conditions.length && { filter: { and: conditions } }),
    ...(fields?.length && { fields }),
    ...(marked.length && { highlight: { fields: marked.slice(0, MAX_HIGHLIGHTED), words: MARKED_WORDS } }),
    ...(params.userToken && { client_id: params.userToken }),
    record: params.analytics !== false,
    ...params.fullrank,
  } as SearchRequest;
}

/** The number of hits, and of those before them. */
export function pageOf({ page = 0, hitsPerPage = 20, offset, length }: Params): { limit: number; offset: number } {
  if (offset !== undefined && length !== undefined) return { limit: length, offset };
  return { limit: hitsPerPage, offset: hitsPerPage ? page * hitsPerPage : 0 };
}

/** Fields with snippets, and their numbers of words: "text:20" asks for 20. */
export function snippetsOf({ attributesToSnippet = [] }: Params): Map<string, number> {
  return new Map(
    attributesToSnippet.map((text) => {
      const [, name = text, words] = /^(.*):(\d+)$/.exec(text) ?? [];
      return [name, Number(words ?? 10)];
    }),
  );
}

function highlighted({ attributesToHighlight }: Params, known: Learned): readonly string[] {
  return attributesToHighlight && !attributesToHighlight.includes("*") ? attributesToHighlight : known.texts;
}

/** Keep what an answer tells about the fields of its documents. */
export function learn(known: Learned, reply: SearchReply, fields: readonly string[] = []): void {
  for (const name of [...fields, ...Object.keys(reply.facets)]) {
    let kinds = known.kinds.get(name);
    if (!kinds) known.kinds.set(name, (kinds = new Set()));
    for (const { value } of reply.facets[name]?.values ?? []) kinds.add(typeof value);
  }
  if (known.isFixed) return;
  const found = new Set(known.texts);
  for (const { fields } of reply.hits) {
    for (const [name, value] of Object.entries(fields)) if (typeof value === "string") found.add(name);
  }
  known.texts = [...found];
}

/** The refined fields whose values may be numbers, or true and false, or text that looks like them. */
export function uncertain(all: readonly Params[], known: Learned): string[] {
  const found = all.flatMap(({ facetFilters = [] }) => list(facetFilters).flat());
  const fields = found.map(facetOf).filter(({ name, value }) => !known.kinds.has(name) && looksTyped(value));
  return [...new Set(fields.map(({ name }) => name))];
}

const looksTyped = (value: string): boolean => /^(true|false)$/.test(value) || isNumber(value);
const isNumber = (value: string): boolean => value.trim() !== "" && Number.isFinite(Number(value));

function conditionsOf(params: Params, known: Learned): Filter[] {
  const conditions = [
    ...list(params.facetFilters).map((one) => anyOf(one, (text) => facetCondition(text, known))),
    ...list(params.numericFilters).map((one) => anyOf(one, numericCondition)),
  ];
  if (params.filters) conditions.push(JSON.parse(params.filters) as Filter);
  return conditions;
}

function list(filters: FacetFilters = []): readonly (string | readonly string[])[] {
  return typeof filters === "string" ? [filters] : filters;
}

// An inner list holds if one of its conditions does.
function anyOf(one: string | readonly string[], parse: (text: string) => Filter): Filter {
  if (typeof one === "string") return parse(one);
  return one.length === 1 ? parse(one[0]!) : { or: one.map(parse) };
}

// "brand:Acme", "brand:-Acme" for all but Acme; a backslash keeps a dash that belongs to the value.
function facetOf(text: string): { name: string; value: string; isNot: boolean } {
  const colon = text.indexOf(":");
  const value = text.slice(colon + 1);
  const isNot = value.startsWith("-");
  return { name: text.slice(0, colon), value: isNot ? value.slice(1) : value.replace(/^\\-/, "-"), isNot };
}

function facetCondition(text: string, known: Learned): Filter {
  const { name, value, isNot } = facetOf(text);
  const kinds = known.kinds.get(name) ?? new Set();
  const values: Value[] = [];
  if (kinds.has("number") && isNumber(value)) values.push(Number(value));
  if (kinds.has("boolean") && /^(true|false)$/.test(value)) values.push(value === "true");
  if (kinds.has("string") || !values.length) values.push(value);
  const condition = { [name]: values.length === 1 ? values[0] : { in: values } };
  return isNot ? { not: condition } : condition;
}

const OPERATORS: Record<string, string> = { "<": "lt", "<=": "lte", ">": "gt", ">=": "gte" };

// "price<=10", "price!=10", "price:10 TO 20"
function numericCondition(text: string): Filter {
  const range = /^(.*):(\S+) TO (\S+)$/.exec(text);
  if (range) return { [range[1]!]: { gte: Number(range[2]), lte: Number(range[3]) } };
  const [, name = "", operator = "", value] = /^(.*?)\s*(<=|>=|!=|=|<|>)\s*(\S+)$/.exec(text) ?? [];
  if (!operator) throw new Error(`${text}: is no numeric filter`);
  if (operator === "!=") return { not: { [name]: Number(value) } };
  return { [name]: operator === "=" ? Number(value) : { [OPERATORS[operator]!]: Number(value) } };
}
