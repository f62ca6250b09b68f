// The search page: what the visitor does, and what then happens.

import { pushAddress, readAddress, replaceAddress } from "./address.js";
import { hasKey, reportClick, saveKey, search as ask } from "./api.js";
import { showClicks } from "./clicks.js";
import { columnOf } from "./hits.js";
import { choose, fillMenus, opponentOf } from "./models.js";
import { formatNumber } from "./score.js";

const DEBOUNCE_MS = 110;
const whole = new Intl.NumberFormat("en");
const $ = (id) => document.getElementById(id);
const [query, model, other, compare] = ["query", "model", "other", "compare"].map($);
const [status, heading, results, sides] = ["status", "heading", "results", "sides"].map($);

let wanted = readAddress();
let menus = { active: undefined, count: 0, names: new Map() };
let running = null;
let typingTimer = 0;
// Typing changes the current history entry, so that a word is not ten steps back. The first letter
// after the visitor left the search box, pressed Enter or went elsewhere begins a new entry.
let beginsEntry = true;
let shownSide = 0;
let retry = start;
let wantsClicks = false; // The visitor asked for the section of operators.

// -- history --------------------------------------------------------------------------------------
// The state of an entry: { scroll, control, fromResults }: how far down the page was, which control
// of the results had the focus, and whether the entry before it holds the results that led here.

history.scrollRestoration = "manual"; // The hits arrive after the browser would scroll.

const controls = () => [...results.querySelectorAll("a, button")];

function rememberView() {
  const control = controls().indexOf(document.activeElement);
  history.replaceState({ ...history.state, scroll: scrollY, control }, "");
}

function restoreView(state) {
  scrollTo(0, state?.scroll ?? 0);
  const control = controls()[state?.control ?? -1];
  if (control) control.focus({ preventScroll: true });
  else if (document.activeElement === document.body) heading.focus({ preventScroll: true });
}

// Go to a new history entry with some wishes changed.
function visit(changes, { focusHeading = false, state = null } = {}) {
  cancelTyping();
  rememberView();
  wanted = { ...wanted, ...changes };
  pushAddress(wanted, state);
  beginsEntry = true;
  return search(() => {
    if (!focusHeading) return;
    heading.focus({ preventScroll: true });
    scrollTo(0, 0);
  });
}

function cancelTyping() {
  clearTimeout(typingTimer);
  typingTimer = 0;
}

function searchTyped() {
  cancelTyping();
  if (query.value === wanted.q && !wanted.similar) return search();
  if (beginsEntry) rememberView();
  wanted = { ...wanted, q: query.value, similar: "" };
  if (beginsEntry) pushAddress(wanted);
  else replaceAddress(wanted);
  beginsEntry = false;
  return search();
}

// -- searching ------------------------------------------------------------------------------------

// Show what is wanted, then call `done`, which moves focus and scrolls.
async function search(done = () => {}) {
  running?.abort();
  const mine = (running = new AbortController());
  showWanted();
  const isIdle = !wanted.similar && !wanted.q.trim();
  $("empty").hidden = !isIdle;
  if (isIdle) {
    showResults([]);
    say("");
    return done();
  }
  results.classList.add("stale");
  const models = wanted.with ? [wanted.model, wanted.with] : [wanted.model];
  try {
    const replies = await Promise.all(models.map((name) => ask(wanted, name, mine.signal)));
    if (mine.signal.aborted) return;
    showResults(replies);
    say(summaryOf(replies));
  } catch (error) {
    if (mine.signal.aborted) return;
    mine.abort();
    showResults([]);
    fail(error, () => search(() => heading.focus()));
  }
  done();
}

function summaryOf(replies) {
  const [first] = replies;
  const parts = [
    `${formatNumber(Math.max(...replies.map((reply) => reply.took_ms)))} ms`,
    foundBy(first),
  ];
  if (replies.every((reply) => reply.certified)) parts.push("exact");
  const reordered = Math.max(...replies.map((reply) => reply.reordered));
  if (reordered > 0) parts.push(`first ${whole.format(reordered)} reordered`);
  if (replies.length === 1) parts.push(first.model);
  return parts.join(" · ");
}

function foundBy({ total, total_at_least: atLeast }) {
  if (total === null) return `at least ${whole.format(atLeast)} documents found`;
  return `${whole.format(total)} ${total === 1 ? "document" : "documents"} found`;
}

// -- showing --------------------------------------------------------------------------------------

function showWanted() {
  // Letters that are not searched yet stay in the box.
  if (!typingTimer && query.value !== wanted.q) query.value = wanted.q;
  choose(model, wanted.model);
  compare.checked = Boolean(wanted.with);
  $("other-label").hidden = !wanted.with;
  if (wanted.with) choose(other, wanted.with);
  document.body.classList.toggle("comparing", Boolean(wanted.with));
  heading.textContent = wanted.similar
    ? `Similar to ${wanted.similar}`
    : wanted.q.trim()
      ? `Results for “${wanted.q.trim()}”`
      : "Results";
  heading.classList.toggle("hidden", !wanted.similar);
  $("back").hidden = !wanted.similar;
  document.title = wanted.similar || wanted.q.trim() ? `${wanted.similar || wanted.q.trim()} · Fullrank` : "Fullrank";
  const limits = [wanted.mode && `Mode: ${wanted.mode}`, wanted.filter && `Filter: ${wanted.filter}`].filter(Boolean);
  $("limits").hidden = !limits.length;
  $("limits").firstElementChild.textContent = limits.join(" · ");
}

function showResults(replies) {
  const names = replies.map((reply) => menus.names.get(reply.model) ?? reply.model);
  const openSimilar = (id) => visit({ similar: id }, { focusHeading: true, state: { fromResults: true } });
  results.replaceChildren(
    ...replies.map((reply, i) => columnOf(reply, names[i], replies[1 - i], openSimilar, reportClick)),
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

function say(text) {
  status.textContent = text;
  status.classList.remove("error");
  $("retry").hidden = true;
}

function fail(error, again) {
  say(error.message);
  status.classList.add("error");
  if (error.status === 401) $("unlock").hidden = false;
  retry = again;
  $("retry").hidden = error.mayRetry === false;
}

// -- clicks and experiments, for operators ----------------------------------------------------------

// Show the section; without permission ask for a key.
async function openClicks() {
  try {
    await showClicks();
  } catch (error) {
    setClicksShown(false);
    wantsClicks = true;
    fail(error, openClicks);
    if (error.status !== 401 && error.status !== 403) return;
    $("unlock").hidden = false;
    $("key").focus();
    return;
  }
  setClicksShown(true);
  $("clicks-heading").focus();
}

// Show the section if the key permits it.
function offerClicks() {
  showClicks().then(() => setClicksShown(true), () => {});
}

function setClicksShown(isShown) {
  wantsClicks = isShown;
  $("clicks").hidden = !isShown;
  $("show-clicks").setAttribute("aria-expanded", isShown);
}

// -- events ---------------------------------------------------------------------------------------

query.addEventListener("input", () => {
  clearTimeout(typingTimer);
  typingTimer = setTimeout(searchTyped, DEBOUNCE_MS);
});
// The browser reports a change when Enter is pressed or the box loses the focus.
query.addEventListener("change", () => {
  if (query.value !== wanted.q) searchTyped();
  beginsEntry = true;
});
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  searchTyped();
  beginsEntry = true;
});
model.addEventListener("change", () => visit({ model: model.value }));
other.addEventListener("change", () => visit({ with: other.value }));
compare.addEventListener("change", () =>
  visit({ with: compare.checked ? opponentOf(wanted.model, menus.active, other) : "" }),
);
[...sides.children].forEach((button, i) => button.addEventListener("click", () => showSide(i)));
$("back").addEventListener("click", () => {
  if (history.state?.fromResults) history.back();
  else visit({ similar: "" }, { focusHeading: true });
});
$("no-limits").addEventListener("click", () => visit({ mode: "", filter: "" }, { focusHeading: true }));
$("retry").addEventListener("click", () => retry());
$("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  saveKey($("key").value.trim());
  $("key").value = "";
  $("unlock").hidden = true;
  const asked = wantsClicks;
  start().then(asked ? openClicks : offerClicks);
});
$("show-clicks").addEventListener("click", () => ($("clicks").hidden ? openClicks() : setClicksShown(false)));
$("days").addEventListener("change", () => showClicks().catch((error) => fail(error, openClicks)));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // The hash belongs to the search.
  heading.focus();
});
addEventListener("popstate", (event) => {
  cancelTyping();
  wanted = readAddress();
  beginsEntry = true;
  search(() => restoreView(event.state));
});
addEventListener("pagehide", rememberView);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const focused = document.activeElement;
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(focused.tagName);
  if ((event.key === "/" && !isTyping) || (event.key === "Escape" && focused !== query)) {
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

async function start() {
  const state = history.state;
  try {
    menus = await fillMenus(model, other);
  } catch (error) {
    showWanted();
    fail(error, start);
    return;
  }
  const { active, count } = menus;
  compare.disabled = count < 2;
  if (active) query.placeholder = `Search ${whole.format(active.documents)} documents as you type`;
  await search(() => state && restoreView(state));
  if (!active) fail({ message: "No model is loaded. Train one, then activate it.", mayRetry: true }, start);
}

showWanted();
start();
if (hasKey()) offerClicks();
