// The answers of one or two models: their lists, "More", what was meant, and the side panel.

import { countValues, report, search } from "./api.js";
import { countsOf, panelOf, showFacets } from "./facets.js";
import { hasCondition } from "./filters.js";
import { appendHits, columnOf } from "./hits.js";
import { searchedOf } from "./models.js";

export const HITS = 10; // Hits on the first page, and that "More" adds.
const MAX_LIMIT = 100; // The most that the service returns at once, by default.
const FEW_VALUES = 8;
const MANY_VALUES = 100;
const $ = (id) => document.getElementById(id);
const [results, sides] = ["results", "sides"].map($);

// What is on the page: { wanted, models, searched, replies, shown, visit }; null: nothing.
let answer = null;
let shownSide = 0;
let facetLimit = FEW_VALUES;

// Search and show the hits.
//   wanted   see address.js
//   menus    see models.js
//   shown    how many hits to show
//   typing   whether the visitor may still be typing
//   visit    goes to an address with some wishes changed
// Returns the answers, or null if they came too late. Raises ServiceError.
export async function showAnswers(wanted, menus, shown, typing, visit, signal) {
  const models = wanted.with ? [wanted.model, wanted.with] : [wanted.model];
  const entry = menus.entryOf(wanted.model);
  const searched = models.map((value) => searchedOf(menus.entryOf(value)));
  const panel = wanted.similar ? [] : panelOf(entry?.fields, entry?.documents);
  const chosen = panel.filter(({ name }) => hasCondition(wanted.filter, name));
  const others = panel.filter((field) => !chosen.includes(field));
  const place = { limit: Math.min(shown, MAX_LIMIT), offset: 0, facetLimit, typing };
  results.classList.add("stale");
  // A field with a condition of its own would only count what was chosen.
  const counting = chosen.map((field) => countValues(wanted, wanted.model, field, facetLimit, signal));
  const [counted, ...replies] = await Promise.all([
    Promise.all(counting),
    ...models.map((model, i) => search(wanted, model, { ...place, panel: i ? [] : others, searched: searched[i] }, signal)),
  ]);
  if (signal.aborted) return null;
  answer = { wanted, models, searched, replies, shown: place.limit, visit };
  showColumns(menus);
  showPanel(panel, countsOf(panel, [replies[0], ...counted]), menus, signal);
  showMore();
  showAdvice(wanted, replies, visit);
  return replies;
}

// Show no hits.
export function clearAnswers() {
  answer = null;
  results.replaceChildren();
  results.classList.remove("stale");
  for (const id of ["side", "show-facets", "sides", "more", "meant", "nothing", "advice"]) $(id).hidden = true;
}

// Append the next hits to each list. Returns how many are shown now.
export async function addMore(signal) {
  const { wanted, models, searched, replies, shown, visit } = answer;
  const place = { limit: HITS, offset: shown, panel: [], typing: false };
  const added = await Promise.all(
    models.map((model, i) => search(wanted, model, { ...place, searched: searched[i] }, signal)),
  );
  if (signal.aborted) return shown;
  added.forEach((reply, i) => {
    replies[i] = { ...replies[i], hits: [...replies[i].hits, ...reply.hits] };
    // A document's place in the other list is known only of its first page.
    appendHits(results.children[i], reply, searched[i], undefined, similarTo(visit), reportClick);
  });
  answer.shown += HITS;
  showMore();
  const titles = results.children[Math.min(shownSide, replies.length - 1)].querySelectorAll(".open");
  titles[shown]?.focus();
  return answer.shown;
}

const reportClick = (queryId, id) => report("click", queryId, id);

const similarTo = (visit) => (id, title) =>
  visit({ similar: id, view: "" }, { focusHeading: true, state: { fromResults: true, title } });

function showColumns(menus) {
  const { replies, searched, visit } = answer;
  const names = replies.map((reply) => menus.names.get(reply.model) ?? reply.model);
  results.replaceChildren(
    ...replies.map((reply, i) => columnOf(reply, names[i], searched[i], replies[1 - i], similarTo(visit), reportClick)),
  );
  results.classList.remove("stale");
  // Only narrow screens show these buttons: there is room for one list at a time.
  sides.hidden = replies.length < 2;
  [...sides.children].forEach((button, i) => {
    button.textContent = names[0] === names[1] ? (replies[i]?.model ?? "") : (names[i] ?? "");
  });
  showSide(shownSide);
}

function showSide(side) {
  shownSide = side;
  results.dataset.side = side;
  [...sides.children].forEach((button, i) => button.setAttribute("aria-pressed", i === side));
}

function showMore() {
  const { replies, shown } = answer;
  $("more").hidden = !replies.some(({ hits, total }) => hits.length >= shown && (total ?? Infinity) > shown);
}

function showPanel(panel, counts, menus, signal) {
  const { wanted, visit } = answer;
  // Where nothing was found, there is nothing to choose from.
  const isEmpty = !wanted.filter && answer.replies.every(({ hits }) => !hits.length);
  const shown = isEmpty ? [] : panel.filter(({ name }) => counts[name]);
  for (const id of ["side", "show-facets"]) $(id).hidden = !shown.length;
  if (!shown.length) $("side").close();
  showFacets($("facets"), shown, counts, wanted.filter, (filter) => visit({ filter }), () => {
    facetLimit = MANY_VALUES;
    showAnswers(wanted, menus, answer.shown, true, visit, signal).catch(() => {});
  });
}

// Where nothing was found, say so; a query that may be misspelt is offered, and never replaced.
function showAdvice(wanted, replies, visit) {
  const meant = replies.map((reply) => reply.did_you_mean).find(Boolean);
  $("meant").hidden = !meant;
  const button = $("meant").querySelector("button");
  button.textContent = meant ?? "";
  button.onclick = () => visit({ q: meant }, { focusHeading: true });
  const isNothing = replies.every((reply) => !reply.hits.length);
  $("nothing").hidden = !isNothing;
  $("advice").hidden = !isNothing || Boolean(wanted.similar);
  $("advice-limits").hidden = !wanted.filter;
  const words = wanted.similar ? "Nothing is similar to this document" : `Nothing found for “${wanted.q.trim()}”`;
  $("nothing").textContent = wanted.filter ? `${words} with this filter.` : `${words}.`;
}

[...sides.children].forEach((button, i) => button.addEventListener("click", () => showSide(i)));
// Wide screens show the filters beside the results, others in a drawer.
$("show-facets").addEventListener("click", () => $("side").showModal());
$("hide-facets").addEventListener("click", () => $("side").close());
$("side").addEventListener("click", ({ target }) => target === $("side") && $("side").close());
