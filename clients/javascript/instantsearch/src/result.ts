// From the answer of a search to a result of InstantSearch.

import { type Hit, type Piece, piecesOf, type SearchReply } from "fullrank-client";
import { GEOLOC, pointOf } from "./geo.js";
import { pageOf, type Params, snippetsOf } from "./request.js";

// The service's default for the deepest hit, FULLRANK_MAX_OFFSET.
const MAX_OFFSET = 10_000;
// The most values that the service counts for a facet.
export const MAX_FACET_VALUES = 1000;

export function resultOf(index: string, params: Params, reply: SearchReply, place: string): any {
  const { limit, offset } = pageOf(params);
  const nbHits = reply.total ?? reply.total_at_least ?? 0;
  const isListed = limit > 0;
  const numbers = Object.entries(reply.facets).filter(([, { min }]) => min !== null);
  return {
    index,
    query: params.query ?? "",
    params: "",
    hits: reply.hits.map((hit) => hitOf(hit, params, place)),
    nbHits,
    exhaustiveNbHits: reply.total !== null,
    page: isListed ? Math.floor(offset / limit) : 0,
    hitsPerPage: limit,
    nbPages: isListed ? Math.min(Math.ceil(nbHits / limit), Math.floor(MAX_OFFSET / limit) + 1) : 0,
    facets: Object.fromEntries(
      Object.entries(reply.facets).map(([name, { values }]) => [
        name,
        Object.fromEntries(values.map(({ value, count }) => [String(value), count])),
      ]),
    ),
    facets_stats: Object.fromEntries(numbers.map(([name, { min, max }]) => [name, { min, max }])),
    exhaustiveFacetsCount: true,
    processingTimeMS: Math.round(reply.took_ms),
    queryID: reply.query_id,
    didYouMean: reply.did_you_mean,
  };
}

function hitOf({ id, fields, highlight }: Hit, params: Params, place: string): any {
  const snippets = snippetsOf(params);
  const _highlightResult: Record<string, unknown> = {};
  const _snippetResult: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (Array.isArray(value)) {
      _highlightResult[name] = value.map((one) => marks(split(String(one)), params));
    } else if (value !== null && typeof value !== "object") {
      const pieces = split(String(value), highlight?.[name]);
      _highlightResult[name] = marks(pieces, params);
      const words = snippets.get(name);
      if (words !== undefined) _snippetResult[name] = marks(cut(pieces, words, params), params);
    }
  }
  const point = pointOf(fields[place]);
  return { ...fields, ...(point && { [GEOLOC]: point }), objectID: id, _highlightResult, _snippetResult };
}

// Split a value at the spans of its snippet.
function split(value: string, found?: { snippet: string; spans: [number, number, string][] }): Piece[] {
  const start = found ? value.indexOf(found.snippet) : -1;
  if (!found || start < 0) return piecesOf(value, []);
  const rest = value.slice(start + found.snippet.length);
  const pieces = [...piecesOf(value.slice(0, start), []), ...piecesOf(found.snippet, found.spans), ...piecesOf(rest, [])];
  return pieces.filter(({ text }) => text);
}

function marks(pieces: readonly Piece[], { highlightPreTag = "<em>", highlightPostTag = "</em>" }: Params): any {
  const marked = pieces.filter(({ isMarked }) => isMarked).map(({ text }) => text.toLowerCase());
  return {
    value: pieces.map(({ text, isMarked }) => (isMarked ? highlightPreTag + text + highlightPostTag : text)).join(""),
    matchLevel: marked.length ? "full" : "none",
    fullyHighlighted: marked.length > 0 && pieces.every(({ text, isMarked }) => isMarked || !text.trim()),
    matchedWords: [...new Set(marked)],
  };
}

// The run of words with the most marks; of equal runs the first.
function cut(pieces: readonly Piece[], words: number, { snippetEllipsisText = "…" }: Params): readonly Piece[] {
  const found = [...pieces.map(({ text }) => text).join("").matchAll(/\S+/gu)];
  if (found.length <= words) return pieces;
  let length = 0;
  const placed = pieces.map((piece) => ({ ...piece, start: length, stop: (length += piece.text.length) }));
  let best = { from: 0, to: 0, count: -1 };
  for (let first = 0; first + words <= found.length; first++) {
    const [from, last] = [found[first]!.index, found[first + words - 1]!];
    const to = last.index + last[0].length;
    const count = placed.filter(({ isMarked, start }) => isMarked && start >= from && start < to).length;
    if (count > best.count) best = { from, to, count };
  }
  const { from, to } = best;
  const window = placed.map(({ text, isMarked, start }) => ({
    text: text.slice(Math.max(from - start, 0), Math.max(to - start, 0)),
    isMarked,
  }));
  const ellipsis = (isCut: boolean) => ({ text: isCut ? snippetEllipsisText : "", isMarked: false });
  const all = [ellipsis(from > found[0]!.index), ...window, ellipsis(to < found.at(-1)!.index)];
  return all.filter(({ text }) => text);
}

/** The values of a facet that contain what is typed into its search box. */
export function facetHits(result: any, params: Params): any {
  const { facetName = "", facetQuery = "", maxFacetHits = 10 } = params;
  const { highlightPreTag = "<em>", highlightPostTag = "</em>" } = params;
  const counts = Object.entries(result.facets[facetName] ?? {}) as [string, number][];
  const found = [];
  for (const [value, count] of counts) {
    const at = value.toLowerCase().indexOf(facetQuery.toLowerCase());
    if (at < 0) continue;
    const end = at + facetQuery.length;
    const marked = facetQuery ? highlightPreTag + value.slice(at, end) + highlightPostTag : "";
    found.push({ value, count, highlighted: value.slice(0, at) + marked + value.slice(end) });
  }
  return { facetHits: found.slice(0, maxFacetHits), exhaustiveFacetsCount: counts.length < MAX_FACET_VALUES, processingTimeMS: 0 };
}
