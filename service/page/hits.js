// The lists of hits. Text of documents reaches the page only through textContent and text nodes.

import { formatNumber, showAxis, showBar, showParts, showWords } from "./score.js";
import { appendMarked, snippetOf } from "./text.js";

const MAX_FULL_CHARS = 20_000;
const MIN_SHARE_OF_BEST = 0.05;

// Return one model's list of hits.
//   reply       an answer of the service
//   name        what the visitor calls the model
//   rival       the answer of the other model, if two are shown side by side
//   onSimilar   called with a document's id
//   onOpen      called with the id of the query and that of a document that is opened
export function columnOf(reply, name, rival, onSimilar, onOpen) {
  const column = document.getElementById("column-template").content.firstElementChild.cloneNode(true);
  column.dataset.model = reply.model;
  column.setAttribute("aria-label", `Results of ${reply.model}`);
  const heading = column.querySelector("h2");
  heading.hidden = !rival;
  heading.querySelector("span").textContent = name;
  heading.querySelector("code").textContent = name === reply.model ? "" : reply.model.slice(name.length + 1);
  heading.querySelector("small").textContent = `${formatNumber(reply.took_ms)} ms`;
  column.querySelector(".nothing").hidden = reply.hits.length > 0;
  const hasScores = reply.hits.some((hit) => hit.explanation);
  column.querySelector(".scale").hidden = !hasScores;
  if (hasScores) showAxis(column.querySelector(".axis"));
  const places = rival && new Map(rival.hits.map((hit, i) => [hit.id, i + 1]));
  column.querySelector("ol").append(
    ...reply.hits.map((hit) => hitOf(hit, places, onSimilar, (id) => onOpen(reply.query_id, id))),
  );
  return column;
}

function hitOf(hit, places, onSimilar, onOpen) {
  const item = document.getElementById("hit-template").content.firstElementChild.cloneNode(true);
  const at = (selector) => item.querySelector(selector);
  const title = typeof hit.fields.title === "string" && hit.fields.title.trim();
  const words = wordsToMark(hit.explanation?.words ?? []);
  item.dataset.id = hit.id;
  at(".id").textContent = hit.id;
  at(".id").hidden = !title || title === hit.id;
  at(".score").textContent = formatNumber(hit.score);
  at(".score").setAttribute("aria-label", `score ${formatNumber(hit.score)}`);
  const text = textOf(hit.fields);
  appendMarked(at(".snippet"), snippetOf(text, words), words);
  const open = linkOf(hit, title || hit.id) ?? opener(item, hit, title || hit.id, text, words);
  for (const kind of ["click", "auxclick"])
    open.addEventListener(kind, (event) => {
      // The right button opens a menu; a document that is closed again was not opened.
      if (event.button < 2 && open.getAttribute("aria-expanded") !== "false") onOpen(hit.id);
    });
  at("h3").append(open);
  if (places) showPlace(at(".place"), places.get(hit.id));
  if (hit.explanation) {
    at(".parts").hidden = false;
    showBar(at(".bar"), hit.explanation);
    showParts(at(".numbers"), hit.explanation);
    showWords(at(".words"), hit.explanation.words);
  }
  at(".similar").setAttribute("aria-label", `Documents similar to ${title || hit.id}`);
  at(".similar").addEventListener("click", () => onSimilar(hit.id));
  return item;
}

// Words such as "of" move no score, so marking them would hide the words that do.
function wordsToMark(words) {
  const weighted = words.map(({ word, dense, lexical }) => ({ word, weight: dense + lexical }));
  const most = Math.max(0, ...weighted.map(({ weight }) => weight));
  return weighted.filter(({ weight }) => weight > MIN_SHARE_OF_BEST * most);
}

// The field "text", else the longest text that is neither title nor url.
function textOf(fields) {
  if (typeof fields.text === "string") return fields.text;
  return Object.entries(fields)
    .filter(([name, value]) => typeof value === "string" && name !== "title" && name !== "url")
    .reduce((longest, [, value]) => (value.length > longest.length ? value : longest), "");
}

// A title leads to the document's own page if it has one. Other schemes than http and https could
// run a script, so they make no link.
function linkOf(hit, label) {
  const { url } = hit.fields;
  if (typeof url !== "string" || !/^https?:\/\//i.test(url) || !URL.canParse(url)) return null;
  const link = document.createElement("a");
  link.className = "open";
  link.href = url;
  link.textContent = label;
  return link;
}

// Without a page of its own a document opens in place, with all its fields.
function opener(item, hit, label, text, words) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "open";
  button.textContent = label;
  button.setAttribute("aria-expanded", "false");
  const full = item.querySelector(".full");
  button.addEventListener("click", () => {
    const isOpen = full.hidden;
    full.hidden = !isOpen;
    item.querySelector(".snippet").hidden = isOpen;
    button.setAttribute("aria-expanded", isOpen);
    if (!full.childElementCount) fillFull(full, hit, text, words);
  });
  return button;
}

function fillFull(full, hit, text, words) {
  const body = document.createElement("div");
  body.className = "text";
  body.tabIndex = 0; // Long texts scroll, also by keyboard.
  body.setAttribute("role", "region");
  body.setAttribute("aria-label", "Text");
  appendMarked(body, text.length > MAX_FULL_CHARS ? `${text.slice(0, MAX_FULL_CHARS)} …` : text, words);
  const fields = document.createElement("dl");
  for (const [name, value] of Object.entries(hit.fields)) {
    if (name === "title" || value === text) continue;
    const row = document.createElement("div");
    const term = document.createElement("dt");
    term.textContent = name;
    const description = document.createElement("dd");
    description.textContent = typeof value === "string" ? value : JSON.stringify(value);
    row.append(term, description);
    fields.append(row);
  }
  full.append(body, fields);
}

function showPlace(badge, place) {
  badge.hidden = false;
  badge.textContent = place ? `other model: #${place}` : "only in this model";
  badge.classList.toggle("only", !place);
}
