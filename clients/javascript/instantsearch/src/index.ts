import { browserId, FullrankClient, FullrankError, type Options } from "fullrank-client";
import { GEOLOC } from "./geo.js";
import { type Params, type Learned, learn, searchOf, uncertain } from "./request.js";
import { facetHits, MAX_FACET_VALUES, resultOf } from "./result.js";
import { insights, type InsightsClient } from "./insights.js";

export interface AdapterOptions extends Options {
  /** Text fields whose matching words are marked, at most 8. By default those of the hits of earlier answers. */
  highlight?: string[];
  /** The field of places that `aroundLatLng` is about and that maps show, `_geoloc` by default. */
  place?: string;
}

export interface Request {
  indexName: string;
  params?: Params;
}

export interface Adapter {
  /** For the option `searchClient` of InstantSearch.js and React InstantSearch. */
  searchClient: {
    search(requests: any): Promise<any>;
    searchForFacetValues(requests: any): Promise<any>;
  };
  /** For the option `insights: { insightsClient }`: clicks, views and conversions become events of Fullrank. */
  insightsClient: InsightsClient;
  client: FullrankClient;
}

const SETTLED_MS = 1_500; // under its results before a query counts as a search
// The longest text that the service completes.
const MAX_PREFIX_CHARS = 256;

/** Make InstantSearch search with a Fullrank service. */
export function fullrankInstantSearch({ highlight, place = GEOLOC, ...options }: AdapterOptions): Adapter {
  const client = new FullrankClient({ client_id: browserId(), ...options });
  const learned = new Map<string, Learned>();
  // InstantSearch reports views without the query. The answer that showed a document last is the one that is seen.
  const shown = new Map<string, string>();

  let settled: ReturnType<typeof setTimeout> | undefined;
  let newest = 0; // number of the last search: an answer that comes after the next search began settles nothing
  let typing = true; // false where the service takes no events: then every answer counts as a search

  function knownOf(model: string): Learned {
    let known = learned.get(model);
    if (!known) learned.set(model, (known = { kinds: new Map(), texts: highlight ?? [], isFixed: !!highlight }));
    return known;
  }

  async function search(requests: readonly Request[]): Promise<{ results: any[] }> {
    const asked = requests.map(({ indexName, params = {} }) => ({ ...parsed(indexName), indexName, params }));
    const searches = asked.filter(({ isCompletion }) => !isCompletion);
    // Widgets ask for completions beside a search, which goes on.
    if (searches.length) clearTimeout(settled);
    const own = searches.length ? ++newest : newest;
    await Promise.all([...new Set(searches.map(({ model }) => model))].map((model) => prepare(model, searches)));
    const sent = searches.map(({ model, sort, params }) => ({
      ...searchOf(model, sort, params, knownOf(model), place),
      typing,
    }));
    const [replies, ...completions] = await Promise.all([
      sent.length ? client.searchBatch(sent) : [],
      ...asked.filter(({ isCompletion }) => isCompletion).map(({ model, params }) => complete(model, params)),
    ]);
    const logged: string[] = [];
    replies.forEach((reply, i) => {
      learn(knownOf(searches[i]!.model), reply);
      // The service logs no list of an empty query.
      if (!sent[i]!.record || !sent[i]!.limit || !sent[i]!.query.trim()) return;
      logged.push(reply.query_id);
      for (const { id } of reply.hits) shown.set(id, reply.query_id);
    });
    if (logged.length && own === newest) settled = setTimeout(() => settle(logged), SETTLED_MS);
    const results = asked.map(({ isCompletion, indexName, params }) =>
      isCompletion
        ? { ...completions.shift(), index: indexName }
        : resultOf(indexName, params, replies.shift()!, place),
    );
    return { results };
  }

  // Nobody typed on, so that the answers count as searches.
  function settle(queryIds: string[]): void {
    client.report(queryIds.map((query_id) => ({ action_name: "impression", query_id }))).catch((error) => {
      if (error instanceof FullrankError && [401, 403].includes(error.status)) typing = false;
    });
  }

  // A page may open with refinements, which are text also where fields have numbers, and with a query whose words are
  // to be marked: the fields are asked for first.
  async function prepare(model: string, searches: { model: string; params: Params }[]): Promise<void> {
    const known = knownOf(model);
    const own = searches.filter((one) => one.model === model).map(({ params }) => params);
    const fields = uncertain(own, known);
    if (!fields.length && (known.texts.length || !own.some(({ query }) => query))) return;
    const probe = { facets: fields, maxValuesPerFacet: 1, hitsPerPage: 1, analytics: false };
    learn(known, await client.search(searchOf(model, [], probe, known, place)), fields);
  }

  async function complete(model: string, { query = "", hitsPerPage = 5 }: Params): Promise<any> {
    const found = query ? await client.complete(query.slice(0, MAX_PREFIX_CHARS), { model, limit: hitsPerPage }) : [];
    const hits = found.map(({ text, kind }) => ({
      objectID: text,
      query: text,
      kind,
      _highlightResult: { query: { value: text, matchLevel: "none", matchedWords: [] } },
    }));
    return { hits, nbHits: hits.length, page: 0, nbPages: 1, hitsPerPage, query, processingTimeMS: 0, params: "" };
  }

  async function searchForFacetValues(requests: readonly Request[]): Promise<any[]> {
    const counted = requests.map(({ indexName, params = {} }) => ({
      indexName,
      params: { ...params, facets: [params.facetName!], maxValuesPerFacet: MAX_FACET_VALUES, hitsPerPage: 0 },
    }));
    const { results } = await search(counted);
    return results.map((result, i) => facetHits(result, requests[i]!.params!));
  }

  return { searchClient: { search, searchForFacetValues }, insightsClient: insights(client, shown), client };
}

// "shop" is a model, "shop:price:asc" its documents ordered by a field, "shop:completions" what completes the query.
function parsed(indexName: string) {
  const [model = "", ...rest] = indexName.split(":");
  const isCompletion = rest[0] === "completions";
  const sort: { field: string; order: "asc" | "desc" }[] = [];
  for (let i = 0; i + 1 < rest.length && !isCompletion; i += 2) {
    sort.push({ field: rest[i]!, order: rest[i + 1] === "desc" ? "desc" : "asc" });
  }
  return { model, sort, isCompletion };
}
