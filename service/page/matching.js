// The view that fills the placements of a page with documents.

import { match, reportClick } from "./api.js";
import { hitOf } from "./hits.js";

const $ = (id) => document.getElementById(id);
const inputs = () => [...$("match-form").elements].filter(({ name }) => name);

// Return what is in the form, to keep it in the history.
export function readForm() {
  return Object.fromEntries(inputs().map(({ name, value }) => [name, value]));
}

// Show a form that was kept, and what fills its placements.
//   form       what readForm returned; null: nothing was asked yet
//   model      the model that the visitor chose
//   onSimilar  called with a document's id
// Raises ServiceError.
export async function showMatch(form, model, onSimilar) {
  $("placements").replaceChildren();
  if (!form) return;
  for (const input of inputs()) input.value = form[input.name] ?? input.defaultValue;
  const placements = Array.from({ length: Number(form.placements) }, (_, i) => ({
    id: `placement ${i + 1}`,
    count: Number(form.count),
  }));
  const reply = await match({ title: form.title, text: form.text }, placements, model);
  $("placements").replaceChildren(...reply.placements.map((placement) => sectionOf(placement, reply, onSimilar)));
  return reply;
}

function sectionOf({ id, hits }, reply, onSimilar) {
  const section = document.createElement("section");
  section.className = "column";
  const heading = document.createElement("h3");
  heading.textContent = `${id[0].toUpperCase()}${id.slice(1)}`;
  section.setAttribute("aria-label", heading.textContent);
  const list = document.createElement("ol");
  list.append(...hits.map((hit) => hitOf(hit, undefined, onSimilar, (opened) => reportClick(reply.query_id, opened))));
  section.append(heading, list);
  if (!hits.length) {
    const nothing = document.createElement("p");
    nothing.className = "nothing";
    nothing.textContent = "No document fits.";
    section.append(nothing);
  }
  return section;
}
