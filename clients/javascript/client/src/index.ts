import type { components } from "./openapi.js";

type Schemas = components["schemas"];

export type SearchRequest = Schemas["SearchRequest"];
export type Hit<Fields = Record<string, unknown>> = Omit<Schemas["Hit"], "fields"> & { fields: Fields };
export type SearchReply<Fields = Record<string, unknown>> = Omit<Schemas["SearchReply"], "hits"> & {
  hits: Hit<Fields>[];
};
export type Completion = Schemas["CompletionReply"];
export type EventsReply = Schemas["EventsReply"];
export type Problem = Schemas["ProblemDocument"];

/** An event of User Behavior Insights 1.3; the client adds `timestamp`, `event_id` and who did it. */
export interface Event {
  /** What happened: click, impression, purchase, add_to_cart, … */
  action_name: string;
  /** Of the answer that showed the document. */
  query_id?: string;
  client_id?: string;
  event_attributes?: { object?: { object_id: string }; dwell_ms?: number };
}

/** Who searches and clicks. The service replaces these ids by pseudonyms. */
export interface Person {
  client_id?: string;
  session_id?: string;
  user_id?: string;
  application?: string;
}

export interface Options extends Person {
  /** Address of the service, such as `https://search.example`. */
  url: string;
  /** API key with the scopes `search` and `events` alone: everybody can read it. */
  key?: string;
  /** Collection of a service that has several; by default that of the active version. */
  collection?: string;
  /** Bundle name, version or alias that searches and completions use. */
  model?: string;
  /** Longest wait for an answer, 10,000 by default. */
  timeoutMs?: number;
  fetch?: typeof fetch;
}

export interface CallOptions {
  signal?: AbortSignal;
  /** A new call with the same text aborts the one before, which then rejects with an `AbortError`. */
  group?: string;
}

/** A request that failed. `message` names the service's reasons; `problem` is its problem document (RFC 9457). */
export class FullrankError extends Error {
  override name = "FullrankError";

  constructor(
    message: string,
    /** HTTP status; 0 without an answer. */
    readonly status: number,
    readonly problem?: Problem,
    /** Seconds after which the same request may succeed, if the service says so. */
    readonly retryAfter?: number,
  ) {
    super(message);
  }
}

/** Whether a call was aborted by its signal or by a newer call of its group. */
export const isAborted = (error: unknown): boolean => (error as Error | undefined)?.name === "AbortError";

export class FullrankClient {
  private readonly running = new Map<string, AbortController>();

  constructor(readonly options: Options) {}

  /** Rank documents for a query. */
  search<Fields = Record<string, unknown>>(
    request: SearchRequest,
    call?: CallOptions,
  ): Promise<SearchReply<Fields>> {
    return this.post("/v1/search", this.filled(request), call);
  }

  /** Answer several searches in their order, all from one generation of the model. */
  async searchBatch(requests: SearchRequest[], call?: CallOptions): Promise<SearchReply[]> {
    const searches = requests.map((request) => this.filled(request));
    return (await this.post<{ answers: SearchReply[] }>("/v1/search:batch", { searches }, call)).answers;
  }

  /** Complete what a person is typing; the best first. */
  async complete(
    prefix: string,
    { limit = 8, model = this.options.model, ...call }: CallOptions & { limit?: number; model?: string } = {},
  ): Promise<Completion[]> {
    const asked = new URLSearchParams({ prefix, limit: String(limit), ...(model && { model }) });
    return (await this.request<{ completions: Completion[] }>(`/v1/complete?${asked}`, {}, call)).completions;
  }

  /** Report that somebody opened a hit of an answer. */
  click(queryId: string, id: string): Promise<EventsReply> {
    return this.report([{ action_name: "click", query_id: queryId, event_attributes: { object: { object_id: id } } }]);
  }

  /** Report that somebody saw hits of an answer. */
  impressions(queryId: string, ids: string[]): Promise<EventsReply> {
    return this.report(
      ids.map((id) => ({
        action_name: "impression",
        query_id: queryId,
        event_attributes: { object: { object_id: id } },
      })),
    );
  }

  /** Report events. The request survives the end of the page. */
  report(events: Event[]): Promise<EventsReply> {
    const timestamp = new Date().toISOString();
    const sent = events.map((event) => ({ timestamp, event_id: randomId(), ...this.person(), ...event }));
    return this.post("/v1/events", sent, {}, true);
  }

  private person(): Person {
    const { client_id, session_id, user_id, application } = this.options;
    // JSON leaves out what is undefined.
    return { client_id, session_id, user_id, application };
  }

  private filled(request: SearchRequest): SearchRequest {
    return { model: this.options.model, ...this.person(), ...request } as SearchRequest;
  }

  private post<Reply>(path: string, body: unknown, call?: CallOptions, keepalive = false): Promise<Reply> {
    const headers = { "Content-Type": "application/json" };
    return this.request(path, { method: "POST", headers, body: JSON.stringify(body), keepalive }, call);
  }

  private async request<Reply>(path: string, init: RequestInit, { signal, group }: CallOptions = {}): Promise<Reply> {
    const { url, key, collection, timeoutMs = 10_000, fetch: fetched = fetch } = this.options;
    const controller = new AbortController();
    const abort = () => controller.abort();
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort);
    if (group !== undefined) {
      this.running.get(group)?.abort();
      this.running.set(group, controller);
    }
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      abort();
    }, timeoutMs);
    const place = collection === undefined ? path : path.replace("/v1", `/v1/collections/${encodeURIComponent(collection)}`);
    const address = url.replace(/\/+$/, "") + place;
    const headers = { ...init.headers, ...(key && { Authorization: `Bearer ${key}` }) };
    try {
      const response = await fetched(address, { ...init, headers, signal: controller.signal });
      const text = await response.text();
      if (!response.ok) throw failure(response, text);
      return JSON.parse(text) as Reply;
    } catch (error) {
      if (error instanceof FullrankError) throw error;
      if (isLate) throw new FullrankError(`${address} did not answer within ${timeoutMs} ms`, 0);
      if (controller.signal.aborted) throw new DOMException("a newer request replaced this one", "AbortError");
      if (error instanceof SyntaxError) throw new FullrankError(`${address} did not answer with JSON`, 0);
      // A browser does not say whether the network, the address or a missing CORS permission is the cause.
      const reason = "check the address, and that FULLRANK_CORS_ORIGINS of the service names the origin of this page";
      throw new FullrankError(`${address} cannot be reached: ${reason}`, 0);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      if (group !== undefined && this.running.get(group) === controller) this.running.delete(group);
    }
  }
}

function failure(response: Response, text: string): FullrankError {
  let problem: Problem | undefined;
  try {
    problem = JSON.parse(text) as Problem;
  } catch {
    // A proxy answered, or the service before it saw the request.
  }
  const fields = problem?.errors?.map(({ field, reason }) => `${field}: ${reason}`).join("; ");
  const message = fields || problem?.detail || problem?.title || text.slice(0, 200) || response.statusText;
  const seconds = Number(response.headers.get("Retry-After") ?? NaN);
  return new FullrankError(
    `${response.status}: ${message}`,
    response.status,
    problem,
    Number.isNaN(seconds) ? undefined : seconds,
  );
}

export interface Piece {
  text: string;
  isMarked: boolean;
}

/** Split a snippet at the words of the query in it. Spans count code points. */
export function piecesOf(snippet: string, spans: readonly (readonly [number, number, string])[]): Piece[] {
  const points = [...snippet];
  const piece = (isMarked: boolean, from: number, to?: number) => ({ text: points.slice(from, to).join(""), isMarked });
  let done = 0;
  const words = spans.filter(([, , kind]) => kind === "word");
  const pieces = words.flatMap(([from, to]) => [piece(false, done, from), piece(true, from, (done = to))]);
  return [...pieces, piece(false, done)];
}

/** 128 random bits in hexadecimal. */
export function randomId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The random id of this browser, kept in `localStorage`; a new one for each page where that is not available. */
export function browserId(): string {
  const name = "fullrank-client";
  try {
    const id = localStorage.getItem(name) ?? randomId();
    localStorage.setItem(name, id);
    return id;
  } catch {
    return (pageId ??= randomId());
  }
}

let pageId: string | undefined;
