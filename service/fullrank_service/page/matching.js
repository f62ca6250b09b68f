// The view that fills the placements of a page with documents, by the rules of the page.

import { match, report, ServiceError } from "./api.js";
import { element } from "./dom.js";
import { hitOf } from "./hits.js";

const RULES = ["targeting", "bcat", "badv", "bidfloor", "min_score"];
// Why the service left an ad out, by the name of the reason.
const REASONS = {
  malformed: "malformed",
  status: "paused",
  start: "not begun",
  end: "ended",
  cattax: "another taxonomy",
  bcat: "blocked category",
  acat: "category not allowed",
  badv: "blocked advertiser",
  wseat: "seat not allowed",
  bseat: "blocked seat",
  battr: "blocked attribute",
  per_advertiser: "advertiser already has its ads",
  bidfloorcur: "another currency",
  bidfloor: "price too low",
};
const whole = new Intl.NumberFormat("en");
const $ = (id) => document.getElementById(id);
const inputs = () => [...$("match-form").elements].filter(({ name }) => name);

// Return what is in the form, to keep it in the history.
export function readForm() {
  return Object.fromEntries(inputs().map(({ name, value }) => [name, value]));
}

// Show a form that was kept, and what fills its placements.
//   form       what readForm returned; null: nothing was asked yet
//   model      the model that the visitor chose
//   searched   the fields that it reads
//   onSimilar  called with a document's id
// Raises ServiceError.
export async function showMatch(form, model, searched, onSimilar) {
  $("placements").replaceChildren();
  $("left-out").hidden = true;
  if (!form) return;
  for (const input of inputs()) input.value = form[input.name] ?? input.defaultValue;
  if (RULES.some((name) => form[name])) $("match-rules").open = true;
  const reply = await match(requestOf(form), model);
  $("left-out").textContent = `Left out of the page: ${countsOf(reply.left_out)}.`;
  $("left-out").hidden = !Object.keys(reply.left_out).length;
  const count = Number(form.count);
  $("placements").replaceChildren(...reply.placements.map((placement) => sectionOf(placement, count, reply, searched, onSimilar)));
  return reply;
}

// Return the fields of the request; a rule that was left empty is absent.
function requestOf(form) {
  const page = Object.fromEntries(["url", "title", "text"].map((name) => [name, form[name]]).filter(([, text]) => text));
  const placement = { count: Number(form.count) };
  for (const name of ["bidfloor", "min_score"]) if (form[name]) placement[name] = Number(form[name]);
  const placements = Array.from({ length: Number(form.placements) }, (_, i) => ({ id: `placement ${i + 1}`, ...placement }));
  const request = { page, placements, per_advertiser: Number(form.per_advertiser) };
  if (form.targeting) request.targeting = parsed(form.targeting);
  for (const name of ["bcat", "badv"]) if (form[name]) request[name] = form[name].split(",").map((code) => code.trim()).filter(Boolean);
  return request;
}

function parsed(filter) {
  try {
    return JSON.parse(filter);
  } catch {
    throw new ServiceError("The targeting filter is not JSON.", 0, false);
  }
}

const countsOf = (leftOut) =>
  Object.entries(leftOut)
    .map(([reason, count]) => `${whole.format(count)} × ${REASONS[reason] ?? reason} (${reason})`)
    .join(", ");

function sectionOf({ id, hits, left_out: leftOut }, count, reply, searched, onSimilar) {
  const title = `${id[0].toUpperCase()}${id.slice(1)}`;
  const items = hits.map((hit) => hitOf(hit, searched, undefined, onSimilar, (opened) => report("click", reply.query_id, opened)));
  const notes = [];
  if (hits.length < count) notes.push(`${hits.length ? `${whole.format(hits.length)} of ${whole.format(count)}` : "Not"} filled: no other document fits.`);
  if (Object.keys(leftOut).length) notes.push(`Left out here: ${countsOf(leftOut)}.`);
  return element(
    "section",
    { className: "column", "aria-label": title },
    element("h3", title),
    ...(items.length ? [element("ol", ...items)] : []),
    ...(notes.length ? [element("p", { className: "nothing" }, notes.join(" "))] : []),
  );
}
