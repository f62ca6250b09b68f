// The lists of hits. Text of documents reaches the page only through textContent and text nodes.

import { element } from "./dom.js";
import { reasonsOf } from "./reasons.js";
import { formatNumber, showAxis, showBar, showParts, showWords } from "./score.js";
import { appendBegin, appendMarked, appendSnippet, markedWords } from "./text.js";

const MAX_FULL_CHARS = 20_000;
const NARROW_LEAD_CHARS = 20; // Half a line of a phone.
const MAX_TITLE_CHARS = 200; // A longer value is a text.
let numbered = 0; // Ids of elements are unique on the page.

// Return one model's list of hits.
//   reply       an answer of the service
//   name        what the visitor calls the model
//   searched    the fields that the model reads
//   rival       the answer of the other model, if two are shown side by side
//   onSimilar   called with a document's id and title
//   onOpen      called with the id of the query and that of a document that is opened
export function columnOf(reply, name, searched, rival, onSimilar, onOpen) {
  const column = document.getElementById("column-template").content.firstElementChild.cloneNode(true);
  column.dataset.model = reply.model;
  if (rival) column.setAttribute("aria-label", `Results of ${reply.model}`);
  const heading = column.querySelector("h2");
  heading.hidden = !rival;
  heading.querySelector("span").textContent = name;
  heading.querySelector("code").textContent = name === reply.model ? "" : reply.model.slice(name.length + 1);
  heading.querySelector("small").textContent = `${formatNumber(reply.took_ms)} ms`;
  column.querySelector(".nothing").hidden = reply.hits.length > 0 || !rival;
  appendHits(column, reply, searched, rival, onSimilar, onOpen);
  return column;
}

// Append the hits of an answer to a model's list.
export function appendHits(column, reply, searched, rival, onSimilar, onOpen) {
  const places = rival && new Map(rival.hits.map((hit, i) => [hit.id, i + 1]));
  const open = (id) => onOpen(reply.query_id, id);
  column.querySelector("ol").append(...reply.hits.map((hit) => hitOf(hit, searched, places, onSimilar, open, reply.hits)));
}

// Return one hit.
//   searched  the fields that the model reads
//   places    place by id in the other model's list, if there is one
//   hits      all hits of the answer
export function hitOf(hit, searched, places, onSimilar, onOpen, hits = [hit]) {
  const item = document.getElementById("hit-template").content.firstElementChild.cloneNode(true);
  const at = (selector) => item.querySelector(selector);
  const titled = titleOf(hit.fields, searched);
  const label = titled ? hit.fields[titled].trim() : hit.id;
  const [textual, text] = textOf(hit.fields, titled);
  item.dataset.id = hit.id;
  at(".id").textContent = hit.id;
  at(".id").hidden = label === hit.id;
  showCrumbs(at(".crumbs"), hit.fields.url);
  showPicture(item, hit.fields);
  const snippet = hit.highlight?.[textual];
  const lead = matchMedia("(max-width: 30rem)").matches ? NARROW_LEAD_CHARS : Infinity;
  if (snippet) appendSnippet(at(".snippet"), text, snippet, lead);
  else appendBegin(at(".snippet"), text);
  const open = linkOf(hit) ?? opener(item, hit, titled, text);
  showTitle(open, label, hit.highlight?.[titled]);
  for (const kind of ["click", "auxclick"])
    open.addEventListener(kind, (event) => {
      // The right button opens a menu; a document that is closed again was not opened.
      if (event.button < 2 && open.getAttribute("aria-expanded") !== "false") onOpen(hit.id);
    });
  at("h3").append(open);
  showOffer(at(".offer"), hit.fields.ad);
  if (places) showPlace(at(".place"), places.get(hit.id));
  explain(item, hit, hits, label);
  at(".similar").setAttribute("aria-label", `Similar to ${label}`);
  at(".similar").addEventListener("click", () => onSimilar(hit.id, label));
  return item;
}

// Titles are short: one of more words than a snippet has is shown without marks.
function showTitle(open, label, highlight) {
  if (highlight?.snippet === label) appendSnippet(open, label, highlight);
  else open.textContent = label;
}

// Fold the reasons for a hit behind "Why this?": plain ones, or for operators the parts of its score.
function explain(item, hit, hits, label) {
  const isConsole = document.body.classList.contains("console");
  const plain = isConsole ? [] : reasonsOf(hit, hits);
  if (!(isConsole ? hit.explanation : plain.length)) return;
  const button = item.querySelector(".why");
  const reasons = item.querySelector(".reasons");
  reasons.id = `reasons-${++numbered}`;
  button.hidden = false;
  button.setAttribute("aria-label", `Why this? ${label}`);
  button.setAttribute("aria-controls", reasons.id);
  button.addEventListener("click", () => {
    reasons.hidden = !reasons.hidden;
    item.classList.toggle("explained", !reasons.hidden);
    button.setAttribute("aria-expanded", !reasons.hidden);
    if (reasons.dataset.filled) return;
    reasons.dataset.filled = true;
    const at = (selector) => reasons.querySelector(selector);
    at(".plain").hidden = isConsole;
    at(".plain").append(...plain.map((reason) => element("li", { dir: "auto" }, reason)));
    if (!isConsole) return;
    at(".score").textContent = formatNumber(hit.score);
    showAxis(at(".axis"));
    showBar(at(".bar"), hit.explanation);
    showParts(at(".numbers"), hit.explanation);
    showWords(at(".words"), hit.explanation.words);
  });
}

// The name of the field whose value is the title: "title", else the first field that the model reads.
function titleOf(fields, searched) {
  const isTitle = (name, most) => typeof fields[name] === "string" && fields[name].trim() && fields[name].length <= most;
  if (isTitle("title", Infinity)) return "title";
  return searched.find((name) => name !== "text" && isTitle(name, MAX_TITLE_CHARS));
}

// The name and the value of the field "text", else of the longest text that is neither title nor url.
function textOf(fields, titled) {
  if (typeof fields.text === "string") return ["text", fields.text];
  return Object.entries(fields)
    .filter(([name, value]) => typeof value === "string" && name !== "title" && name !== titled && name !== "url")
    .reduce((longest, field) => (field[1].length > longest[1].length ? field : longest), ["", ""]);
}

// A title leads to the document's own page if it has one. Other schemes than http and https could
// run a script, so they make no link.
const isPage = (url) => typeof url === "string" && /^https?:\/\//i.test(url) && URL.canParse(url);

function linkOf({ fields: { url } }) {
  return isPage(url) ? element("a", { className: "open", href: url }) : null;
}

// Say where a document is, for visitors: the host and the folders of its page.
function showCrumbs(crumbs, url) {
  if (!isPage(url)) return;
  const { host, pathname } = new URL(url);
  const folders = pathname.split("/").slice(0, -1).filter(Boolean).map(decoded);
  crumbs.textContent = [host, ...folders].join(" › ");
  crumbs.hidden = false;
}

// The picture of a document; its address may be relative to that of the document.
function showPicture(item, { image, url }) {
  const base = isPage(url) ? url : location.href;
  if (typeof image !== "string" || !image || !URL.canParse(image, base)) return;
  const { href } = new URL(image, base);
  if (!isPage(href)) return;
  const onerror = ({ target }) => target.remove();
  item.prepend(element("img", { className: "thumb", alt: "", loading: "lazy", onerror, src: href }));
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a lone percent sign
  }
}

// Without a page of its own a document opens in place, with all its fields.
function opener(item, hit, titled, text) {
  const button = element("button", { type: "button", className: "open", "aria-expanded": false });
  const full = item.querySelector(".full");
  button.addEventListener("click", () => {
    const isOpen = full.hidden;
    full.hidden = !isOpen;
    item.querySelector(".snippet").hidden = isOpen;
    button.setAttribute("aria-expanded", isOpen);
    if (!full.childElementCount) fillFull(full, hit, titled, text);
  });
  return button;
}

function fillFull(full, hit, titled, text) {
  // Long texts scroll, also by keyboard.
  const body = element("div", { className: "text", tabIndex: 0, role: "region", "aria-label": "Text" });
  const shown = text.length > MAX_FULL_CHARS ? `${text.slice(0, MAX_FULL_CHARS)} …` : text;
  appendMarked(body, shown, markedWords(hit.highlight));
  const fields = element("dl");
  for (const [name, value] of Object.entries(hit.fields)) {
    if (name === "title" || name === titled || value === text) continue;
    const shown = typeof value === "string" ? value : JSON.stringify(value);
    fields.append(element("div", element("dt", name), element("dd", shown)));
  }
  full.append(body, fields);
}

// Name the advertiser and the price of an ad.
function showOffer(badge, ad) {
  const domains = Array.isArray(ad?.adomain) ? ad.adomain : [];
  badge.hidden = !domains.length;
  const price = ad?.price === undefined ? [] : [`${ad.price} ${ad.cur ?? "USD"}`];
  badge.textContent = ["Ad", ...domains.slice(0, 1), ...price].join(" · ");
}

function showPlace(badge, place) {
  badge.hidden = false;
  badge.textContent = place ? `other model: #${place}` : "only in this model";
  badge.classList.toggle("only", !place);
}
