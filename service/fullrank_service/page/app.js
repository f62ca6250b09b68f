// The search page at /, and the console at /console, which has all views, models and the parts of scores for operators:
// what the visitor does, and what then happens.

import { pushAddress, readAddress, replaceAddress, urlOf } from "./address.js";
import { complete, hasKey, report, saveKey } from "./api.js";
import { showModels } from "./catalog.js";
import { showClicks } from "./clicks.js";
import { attachCompletion } from "./combobox.js";
import { element } from "./dom.js";
import { partsOf } from "./filters.js";
import { readForm, showMatch } from "./matching.js";
import { choose, fillMenus, opponentOf, searchedOf } from "./models.js";
import { addMore, clearAnswers, HITS, showAnswers } from "./results.js";
import { formatNumber } from "./score.js";

// Longer than the pause between two letters of most people, so that results do not jump; completions come sooner.
const PAUSE_MS = 400;
// A query that stays so long under its results counts as a search.
const SETTLED_MS = 1_500;
const SLOW_MS = 1_000;
const VIEWS = { "": "search", match: "match", models: "models", clicks: "clicks" };
const TITLES = { match: "Match", models: "Models", clicks: "Clicks" };
const whole = new Intl.NumberFormat("en");
const $ = (id) => document.getElementById(id);
const isConsole = location.pathname.endsWith("/console");
document.body.classList.toggle("console", isConsole);
const [query, model, other, compare] = ["query", "model", "other", "compare"].map($);
const [status, heading, results] = ["status", "heading", "results"].map($);

let wanted = readWanted();
let menus = { active: undefined, count: 0, names: new Map(), entryOf: () => undefined };
let running = null;
let typingTimer = 0;
let settledTimer = 0;
let typed = null; // The search for what is typed so far: { ids, isSettled }, the ids of its answers.
const REPEATED = { ids: [] }; // In place of it: results that were shown before count as no search.
// Typing changes the current history entry, so that a word is not ten steps back. The first letter
// after the visitor left the search box, pressed Enter or went elsewhere begins a new entry.
let beginsEntry = true;
let retry = start;
let wasCut = false; // Whether more was pasted than fits.

// -- history --------------------------------------------------------------------------------------
// The state of an entry: { scroll, control, shown, form, fromResults }: how far down the page was, which control
// of the results had the focus, how many hits were shown, what was matched, and whether the entry before it holds
// the results that led here.

history.scrollRestoration = "manual"; // The hits arrive after the browser would scroll.

const controls = () => [...results.querySelectorAll("a, button")];

// Visitors see one list; other views and a second model are for the console.
function readWanted() {
  return { ...readAddress(), ...(!isConsole && { view: "", with: "" }) };
}

function rememberView() {
  const control = controls().indexOf(document.activeElement);
  history.replaceState({ ...history.state, scroll: scrollY, control }, "");
}

function restoreView(state) {
  scrollTo(0, state?.scroll ?? 0);
  const control = controls()[state?.control ?? -1];
  if (control) control.focus({ preventScroll: true });
  else if (document.activeElement === document.body) headingOf(wanted.view).focus({ preventScroll: true });
}

// Go to a new history entry with some wishes changed.
function visit(changes, { focusHeading = false, state = null } = {}) {
  cancelTyping();
  settle();
  typed = null;
  rememberView();
  wanted = { ...wanted, ...changes };
  pushAddress(wanted, state);
  beginsEntry = true;
  return show(() => {
    if (!focusHeading) return;
    headingOf(wanted.view).focus({ preventScroll: true });
    scrollTo(0, 0);
  });
}

function cancelTyping() {
  clearTimeout(typingTimer);
  typingTimer = 0;
}

// The visitor typed no further, or uses the results: what was typed was a search.
function settle() {
  clearTimeout(settledTimer);
  if (!typed) return;
  typed.isSettled = true;
  for (const id of typed.ids.splice(0)) report("impression", id);
}

// Search for what is in the box; isTyping: the visitor may still be typing.
function searchTyped(isTyping) {
  cancelTyping();
  if (query.value === wanted.q && !wanted.similar && !wanted.view) {
    if (!isTyping) settle();
    return status.classList.contains("error") && show();
  }
  clearTimeout(settledTimer);
  typed = isTyping ? { ids: [], isSettled: false } : null;
  if (beginsEntry) rememberView();
  wanted = { ...wanted, q: query.value, similar: "", view: "" };
  if (beginsEntry) pushAddress(wanted);
  else {
    replaceAddress(wanted);
    history.replaceState({ ...history.state, shown: HITS }, "");
  }
  beginsEntry = false;
  return show();
}

// -- showing --------------------------------------------------------------------------------------

const viewOf = (name) => (Object.hasOwn(VIEWS, name) ? name : "");
const headingOf = (view) => (viewOf(view) ? $(`${VIEWS[viewOf(view)]}-heading`) : heading);

// Show what is wanted, then call `done`, which moves focus and scrolls.
async function show(done = () => {}) {
  running?.abort();
  const mine = (running = new AbortController());
  const state = history.state;
  const view = viewOf(wanted.view);
  showWanted(view);
  const slow = setTimeout(() => mine === running && say("Still searching …"), SLOW_MS);
  try {
    const summary = await {
      "": () => showSearch(state?.shown ?? HITS, mine.signal),
      match: () => showMatching(state?.form),
      models: showCatalog,
      clicks: showOperators,
    }[view]();
    if (mine.signal.aborted) return;
    say(summary);
  } catch (error) {
    if (mine.signal.aborted) return;
    mine.abort();
    // Hits of the query before stay, marked as stale, while the service may recover.
    if (!error.mayRetry) clearAnswers();
    fail(error, () => show(() => headingOf(wanted.view).focus()));
    if (!view || !needsKey(error)) done();
    return;
  } finally {
    clearTimeout(slow);
  }
  done();
}

async function showSearch(shown, signal) {
  const isIdle = !wanted.similar && !wanted.q.trim();
  $("empty").hidden = !isIdle;
  if (isIdle) {
    clearAnswers();
    return "";
  }
  const current = typed;
  const replies = await showAnswers(wanted, menus, shown, Boolean(current), visit, signal);
  if (!replies) return "";
  if (current && current !== REPEATED) {
    current.ids = replies.map((reply) => reply.query_id);
    settledTimer = setTimeout(settle, current.isSettled ? 0 : SETTLED_MS);
  }
  return summaryOf(replies);
}

function summaryOf(replies) {
  const [first] = replies;
  const cut = wasCut && query.value.length === query.maxLength;
  const parts = isConsole ? costOf(replies) : [foundBy(first)];
  if (cut) parts.push(`only the first ${whole.format(query.maxLength)} characters are searched`);
  return parts.join(" · ");
}

function costOf(replies) {
  const [first] = replies;
  const parts = [
    `${formatNumber(Math.max(...replies.map((reply) => reply.took_ms)))} ms`,
    foundBy(first),
  ];
  if (replies.every((reply) => reply.certified)) parts.push("exact");
  const reordered = Math.max(...replies.map((reply) => reply.reordered));
  if (reordered > 0) parts.push(`first ${whole.format(reordered)} reordered`);
  if (replies.length === 1) parts.push(first.model);
  return parts;
}

function foundBy({ total, total_at_least: atLeast }) {
  if (total === null) return `at least ${whole.format(atLeast)} documents found`;
  return `${whole.format(total)} ${total === 1 ? "document" : "documents"} found`;
}

async function showMatching(form) {
  const openSimilar = (id, title) => visit({ similar: id, view: "" }, { focusHeading: true, state: { title } });
  const searched = searchedOf(menus.entryOf(wanted.model));
  const reply = await showMatch(form, wanted.model, searched, openSimilar);
  return reply ? `${formatNumber(reply.took_ms)} ms · ${reply.model}` : "";
}

async function showCatalog() {
  // A swap has a key of its own.
  const onFailed = (error) => fail(error, show, false);
  const { models, workers } = await showModels(announceSwap, onFailed);
  const versions = `${models.length} ${models.length === 1 ? "version" : "versions"}`;
  // Only operators see the workers.
  return workers ? `${versions} · ${workers.length} ${workers.length === 1 ? "worker" : "workers"}` : versions;
}

async function announceSwap(swapped) {
  await start(false);
  say(`${swapped.version} serves, in all ${swapped.workers} workers, after ${whole.format(swapped.took_ms)} ms.`);
  headingOf("models").focus();
}

// Without permission ask for a key.
async function showOperators() {
  $("clicks").hidden = true;
  try {
    await showClicks(wanted.days);
  } catch (error) {
    if (needsKey(error)) {
      askForKey();
      $("key").focus();
    }
    throw error;
  }
  $("clicks").hidden = viewOf(wanted.view) !== "clicks";
  return "";
}

function showWanted(view) {
  // Letters that are not searched yet stay in the box.
  if (!typingTimer && query.value !== wanted.q) query.value = wanted.q;
  $("clear").hidden = !query.value;
  for (const [name, id] of Object.entries(VIEWS)) $(id).hidden = name !== view;
  for (const link of $("views").children) {
    const name = link.dataset.view;
    link.href = urlOf({ ...wanted, view: name, similar: "" });
    if (name === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  choose(model, wanted.model);
  compare.checked = Boolean(wanted.with);
  $("other-label").hidden = !wanted.with;
  if (wanted.with) choose(other, wanted.with);
  document.body.classList.toggle("comparing", Boolean(wanted.with) && !view);
  const similar = wanted.similar && (history.state?.title ?? (isConsole ? wanted.similar : "this document"));
  heading.textContent = similar
    ? `Similar to ${similar}`
    : wanted.q.trim()
      ? `Results for “${wanted.q.trim()}”`
      : "Search";
  heading.classList.toggle("hidden", !wanted.similar);
  $("back").hidden = !wanted.similar;
  const title = view ? TITLES[view] : similar ? heading.textContent : wanted.q.trim();
  document.title = title ? `${title} · Fullrank` : "Fullrank";
  showLimits();
}

// One button for each part of the filter takes it back, one at the end all of them.
function showLimits() {
  const parts = partsOf(wanted.filter);
  $("show-facets").textContent = parts.length ? `Filters (${parts.length})` : "Filters";
  const limits = parts.map(({ label, rest }) => limitOf(label, { filter: rest }));
  if (wanted.mode) limits.unshift(limitOf(`Mode: ${wanted.mode}`, { mode: "" }));
  if (limits.length > 1) limits.push(remover({ id: "no-limits" }, { mode: "", filter: "" }, "Remove all"));
  $("limits").hidden = !limits.length;
  $("limits").replaceChildren(...limits);
}

function limitOf(label, changes) {
  const attributes = { className: "limit", "aria-label": `Remove ${label}` };
  return remover(attributes, changes, element("span", { dir: "auto" }, label), element("i", { ariaHidden: "true" }, "×"));
}

function remover(attributes, changes, ...children) {
  const onclick = () => visit(changes, { focusHeading: true });
  return element("button", { type: "button", ...attributes, onclick }, ...children);
}

function showExamples() {
  const examples = menus.active?.examples ?? [];
  $("examples").hidden = !examples.length;
  $("examples").querySelector("ul").replaceChildren(
    ...examples.map((text) => {
      const onclick = (event) => follow(event, { q: text });
      return element("li", element("a", { href: urlOf({ ...wanted, q: text }), dir: "auto", onclick }, text));
    }),
  );
}

// Follow a link inside the page, unless the visitor wants it elsewhere.
function follow(event, changes) {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  visit(changes, { focusHeading: true });
}

function say(text) {
  status.textContent = text;
  status.classList.remove("error");
  $("retry").hidden = true;
}

// Without a key, or with one that may not do this.
const needsKey = ({ status }) => status === 401 || status === 403;

function askForKey() {
  $("unlock").hidden = false;
  $("forget").hidden = !hasKey();
}

function fail(error, again, ofKey = needsKey(error)) {
  say(error.status === 401 && !hasKey() ? "An API key is needed for this." : error.message);
  status.classList.add("error");
  if (ofKey) askForKey();
  retry = again;
  $("retry").hidden = error.mayRetry === false;
}

// -- events ---------------------------------------------------------------------------------------

const closeCompletions = attachCompletion(
  query,
  $("completions"),
  (typed, signal) => complete(typed, wanted.model, signal),
  () => {
    searchTyped(false);
    beginsEntry = true;
  },
);
query.addEventListener("paste", (event) => {
  const pasted = event.clipboardData.getData("text").length;
  const replaced = query.selectionEnd - query.selectionStart;
  wasCut = query.value.length - replaced + pasted > query.maxLength;
});
query.addEventListener("input", () => {
  $("clear").hidden = !query.value;
  clearTimeout(typingTimer);
  typingTimer = setTimeout(() => searchTyped(true), PAUSE_MS);
});
// The browser reports a change when Enter is pressed or the box loses the focus.
query.addEventListener("change", () => {
  if (query.value === wanted.q) settle();
  else searchTyped(false);
  beginsEntry = true;
});
$("clear").addEventListener("click", () => {
  query.value = "";
  closeCompletions();
  searchTyped(false);
  query.focus();
});
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  closeCompletions();
  searchTyped(false);
  beginsEntry = true;
  // The keyboard of a telephone would hide the results.
  if (matchMedia("(pointer: coarse)").matches) query.blur();
});
model.addEventListener("change", () => visit({ model: model.value }, { state: keptForm() }));
other.addEventListener("change", () => visit({ with: other.value }));
compare.addEventListener("change", () =>
  visit({ with: compare.checked ? opponentOf(wanted.model, menus.active, other) : "", view: "" }),
);
$("back").addEventListener("click", () => {
  if (history.state?.fromResults) history.back();
  else visit({ similar: "" }, { focusHeading: true });
});
$("more").addEventListener("click", async () => {
  const { signal } = running;
  try {
    const shown = await addMore(signal);
    if (!signal.aborted) history.replaceState({ ...history.state, shown }, "");
  } catch (error) {
    if (!signal.aborted) fail(error, () => $("more").click());
  }
});
$("retry").addEventListener("click", () => retry());
function useKey(key) {
  saveKey(key);
  $("key").value = "";
  $("unlock").hidden = true;
  start(true);
}
$("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey($("key").value.trim());
});
$("forget").addEventListener("click", () => useKey(""));
$("match-form").addEventListener("submit", (event) => {
  event.preventDefault();
  visit({}, { state: { form: readForm() } });
});
$("admin").addEventListener("submit", (event) => event.preventDefault());
$("days").addEventListener("change", () => visit({ days: $("days").value }));
for (const link of $("views").children) {
  link.addEventListener("click", (event) => follow(event, { view: link.dataset.view, similar: "" }));
}
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // The hash belongs to the search.
  headingOf(wanted.view).focus();
});
addEventListener("popstate", (event) => {
  cancelTyping();
  settle();
  typed = REPEATED;
  closeCompletions();
  wanted = readWanted();
  beginsEntry = true;
  show(() => restoreView(event.state));
});
// Before a link is followed: once the next page is there, the entry can no longer be changed.
results.addEventListener("click", rememberView, true);
addEventListener("pagehide", () => {
  rememberView();
  settle();
});
document.addEventListener("keydown", (event) => {
  const focused = document.activeElement;
  // With a modifier: a single letter would also be heard from people who speak to their computer (WCAG 2.1.4).
  if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key === "k") {
    event.preventDefault();
    query.select();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(focused.tagName);
  if (event.key === "Escape" && focused !== query) {
    event.preventDefault();
    query.select();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    if (isTyping && focused !== query) return;
    const titles = [...results.querySelectorAll(".open")].filter((title) => title.checkVisibility());
    const now = titles.indexOf(focused.closest(".hit")?.querySelector(".open"));
    if (now < 0 && event.key === "ArrowUp") return;
    event.preventDefault();
    const next = now + (event.key === "ArrowDown" ? 1 : -1);
    (next < 0 ? query : titles[Math.min(next, titles.length - 1)])?.focus();
  }
});

// What is being matched stays while another model is chosen.
const keptForm = () => (wanted.view === "match" ? { form: history.state?.form } : null);

// Read the models, then show what is wanted.
async function start(focusHeading = false) {
  const state = history.state;
  if (state) typed = REPEATED;
  try {
    menus = await fillMenus(model, other);
  } catch (error) {
    showWanted(viewOf(wanted.view));
    fail(error, start);
    return;
  }
  const { active, count } = menus;
  compare.disabled = count < 2;
  if (active) query.placeholder = `Search ${whole.format(active.documents)} documents`;
  showExamples();
  await show(() => {
    if (focusHeading) headingOf(wanted.view).focus();
    else if (state) restoreView(state);
  });
  if (!active) fail({ message: "No model is loaded. Train one, then activate it.", mayRetry: true }, start);
}

showWanted(viewOf(wanted.view));
start();
