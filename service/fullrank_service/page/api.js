// Requests to the service. Every failure becomes a ServiceError whose message a visitor understands.

import { without } from "./filters.js";
import { asked } from "./ranges.js";

const TIMEOUT_MS = 10_000;
const SWAP_TIMEOUT_MS = 300_000;
const COMPLETIONS = 8;
const MAX_PREFIX_CHARS = 256;
const MAX_HIGHLIGHTED = 8; // The most fields that the service marks words in.
const PAGE = "fullrank-page"; // The application of its searches and clicks.

// `status` is the HTTP status, 0 without an answer; `mayRetry`: the same request may work later; `type` is that of the
// problem document, if there is one; `fields` are those of the request that it refuses.
export class ServiceError extends Error {
  constructor(message, status = 0, mayRetry = true, type = undefined, fields = []) {
    super(message);
    this.status = status;
    this.mayRetry = mayRetry;
    this.type = type;
    this.fields = fields;
  }
}

// The key lasts as long as this tab; an empty one removes it.
export function saveKey(key) {
  if (key) sessionStorage.setItem("key", key);
  else sessionStorage.removeItem("key");
}

export const hasKey = () => Boolean(sessionStorage.getItem("key"));

export function listModels() {
  return request("v1/models");
}

// Complete what is typed into the search box.
export async function complete(prefix, model, signal) {
  const parameters = new URLSearchParams({ prefix: prefix.slice(0, MAX_PREFIX_CHARS), limit: COMPLETIONS, model });
  return (await request(`v1/complete?${parameters}`, { signal })).completions;
}

// Search, or list similar documents if `wanted.similar` is set, with one model.
//   page  { limit, offset, panel, facetLimit, searched }: which hits, the fields whose values are counted, see facets.js,
//         and those that the model reads; typing: whether the visitor may still be typing
export async function search(wanted, model, page, signal) {
  if (wanted.similar) {
    const id = wanted.similar.split("/").map(encodeURIComponent).join("/");
    const { limit, offset } = page;
    const parameters = new URLSearchParams({ limit, offset, model, ...visitor() });
    if (wanted.mode) parameters.set("mode", wanted.mode);
    if (wanted.filter) parameters.set("filter", wanted.filter);
    return request(`v1/documents/${id}/similar?${parameters}`, { signal });
  }
  const { panel, facetLimit, searched, typing, ...place } = page;
  // A search while typing is not counted, unless the visitor may send no event that counts it later.
  const body = { ...queryOf(wanted, model), ...place, typing: typing && isHeard, explain: true, ...facetsOf(panel, facetLimit) };
  const highlight = { fields: searched.slice(0, MAX_HIGHLIGHTED) };
  try {
    return await post("v1/search", { ...body, highlight }, { signal });
  } catch (error) {
    // No document has a field that the model reads.
    if (!error.fields?.some((field) => field.startsWith("highlight."))) throw error;
    return post("v1/search", body, { signal });
  }
}

// Count the values of a field of the panel, as if the visitor had chosen none of them. Returns the answer.
export function countValues(wanted, model, field, limit, signal) {
  const others = { ...wanted, filter: without(wanted.filter, field.name) };
  const body = { ...queryOf(others, model), limit: 1, fields: [], record: false };
  return post("v1/search", { ...body, ...facetsOf([field], limit) }, { signal });
}

// Return what a search asks for the fields of the panel.
function facetsOf(panel, limit) {
  if (!panel.length) return {};
  const ranged = panel.filter(({ ranges }) => ranges);
  return {
    facets: panel.filter(({ ranges }) => !ranges).map(({ name }) => name),
    facet_limit: limit,
    facet_ranges: Object.fromEntries(ranged.map(({ name, ranges }) => [name, asked(ranges)])),
  };
}

function queryOf(wanted, model) {
  const body = { query: wanted.q, model, ...visitor() };
  if (wanted.mode) body.mode = wanted.mode;
  if (wanted.filter) body.filter = parsed(wanted.filter);
  return body;
}

// Fill the placements of a page with documents.
//   request  the page, its placements and its rules
export function match(request, model) {
  return post("v1/match", { ...request, model, explain: true, ...visitor() });
}

// Make a version the default. Every worker first loads and verifies it, which takes its time.
export function activate(version, adminKey) {
  const headers = { "Content-Type": "application/json" };
  if (adminKey) headers.Authorization = `Bearer ${adminKey}`;
  const body = JSON.stringify({ version });
  return request("v1/models/aliases/default", { method: "PUT", headers, body, timeoutMs: SWAP_TIMEOUT_MS });
}

export function readAnalytics(days) {
  return request(`v1/analytics?${new URLSearchParams({ days })}`);
}

// Return the experiment that runs, or null.
export async function readExperiment() {
  try {
    return await request("v1/experiments/default");
  } catch (error) {
    if (error.type?.endsWith(":experiment-not-found")) return null;
    throw error;
  }
}

export function readDecisions() {
  return request("v1/experiments/default/decisions");
}

let isHeard = true; // Whether the service takes events of this visitor.

// Report that the visitor opened a hit ("click"), or, without an id, that a query stayed as it is ("impression").
// The page may be left at once, and nobody waits for the answer.
export function report(action, queryId, id) {
  const key = sessionStorage.getItem("key");
  const event = {
    action_name: action,
    timestamp: new Date().toISOString(),
    query_id: queryId,
    ...visitor(),
    ...(id !== undefined && { event_attributes: { object: { object_id: id } } }),
  };
  fetch("v1/events", {
    method: "POST",
    keepalive: true,
    headers: { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) },
    body: JSON.stringify([event]),
  }).then(({ status }) => (isHeard = status !== 401 && status !== 403)).catch(() => {});
}

// Who searches and clicks: random names of this browser and of this tab.
function visitor() {
  return { client_id: nameIn(localStorage, "client"), session_id: nameIn(sessionStorage, "session"), application: PAGE };
}

function nameIn(storage, key) {
  let id = storage.getItem(key);
  if (!id) {
    id = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    storage.setItem(key, id);
  }
  return id;
}

function parsed(filter) {
  try {
    return JSON.parse(filter);
  } catch {
    throw new ServiceError("The filter in the address is not JSON.", 0, false);
  }
}

function post(path, body, options = {}) {
  const headers = { "Content-Type": "application/json" };
  return request(path, { method: "POST", headers, body: JSON.stringify(body), ...options });
}

async function request(path, { signal, headers, timeoutMs = TIMEOUT_MS, ...options } = {}) {
  const key = sessionStorage.getItem("key");
  const timeout = new AbortController();
  const timer = setTimeout(() => timeout.abort(), timeoutMs);
  const signals = signal ? [signal, timeout.signal] : [timeout.signal];
  let response;
  let text;
  try {
    response = await fetch(path, {
      ...options,
      headers: { ...(key && { Authorization: `Bearer ${key}` }), ...headers },
      signal: AbortSignal.any(signals),
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error; // The visitor asked for something else.
    throw new ServiceError(
      timeout.signal.aborted
        ? `The service did not answer within ${timeoutMs / 1000} seconds. Try again.`
        : "The service is not reachable. Check your connection and try again.",
    );
  } finally {
    clearTimeout(timer);
  }
  const body = json(text);
  if (response.ok && body) return body;
  throw failure(response, body);
}

// Return the JSON object in a text, or null: a proxy answers for a service that is down, in HTML.
function json(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}

function failure(response, body) {
  const { status } = response;
  const mayRetry = response.ok || status === 408 || status === 429 || status >= 500;
  const seconds = secondsToWait(response.headers.get("Retry-After"));
  const parts = [];
  if (typeof body?.detail === "string") {
    parts.push(body.detail);
    for (const { field, reason } of body.errors ?? []) parts.push(`${field}: ${reason}`);
  } else if (response.ok) {
    parts.push(`Something other than the search service answered (${status}).`);
  } else if (status === 429) {
    parts.push(`Too many requests (${status}).`);
  } else if (status === 503) {
    parts.push(`The service is too busy or is starting (${status}).`);
  } else if (status >= 500) {
    parts.push(`The service is not reachable (${status}).`);
  } else {
    parts.push(`The request was refused (${status}).`);
  }
  if (seconds) parts.push(`Try again in ${seconds} ${seconds === 1 ? "second" : "seconds"}.`);
  else if (mayRetry && !/try again/i.test(parts.join())) parts.push("Try again.");
  const fields = body?.errors?.map(({ field }) => field);
  return new ServiceError(parts.join(" "), status, mayRetry, body?.type, fields);
}

// Retry-After is a number of seconds or a date.
function secondsToWait(header) {
  if (!header) return 0;
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return seconds > 0 ? Math.ceil(seconds) : 0;
}
