"use strict";
// The search page. Text from documents reaches the page only through textContent.
(() => {
  const DEBOUNCE_MS = 110;
  const LIMIT = 10;
  const SNIPPET_CHARS = 260;
  const PARTS = ["learned", "exact", "bias"];
  const LETTER = "[\\p{L}\\p{M}\\p{N}]";
  const UNSPACED =
    /[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Hang}\p{sc=Bopo}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}\p{sc=Mymr}]/u;
  const $ = (id) => document.getElementById(id);
  const [query, model, other, compare] = ["query", "model", "other", "compare"].map($);
  const [status, results, empty, like] = ["status", "results", "empty", "like"].map($);
  const number = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2, signDisplay: "negative" });
  const whole = new Intl.NumberFormat("en");

  let wanted = { q: "", model: "default", with: "", like: "" };
  let running = null;
  let timer = 0;
  let names = new Map();
  // Kept for this tab only.
  let secret = sessionStorage.getItem("key") ?? "";

  // -- the address keeps what was asked -----------------------------------------------------

  function readHash() {
    const given = new URLSearchParams(location.hash.slice(1));
    wanted = {
      q: given.get("q") ?? "",
      model: given.get("model") || "default",
      with: given.get("with") ?? "",
      like: given.get("like") ?? "",
    };
  }

  function writeHash() {
    const kept = new URLSearchParams();
    if (wanted.q) kept.set("q", wanted.q);
    if (wanted.model !== "default") kept.set("model", wanted.model);
    if (wanted.with) kept.set("with", wanted.with);
    if (wanted.like) kept.set("like", wanted.like);
    const hash = kept.size ? `#${kept}` : location.pathname + location.search;
    history.replaceState(null, "", hash);
  }

  function showWanted() {
    if (query.value !== wanted.q) query.value = wanted.q;
    choose(model, wanted.model);
    compare.checked = Boolean(wanted.with);
    $("other-label").hidden = !wanted.with;
    if (wanted.with) choose(other, wanted.with);
    document.body.classList.toggle("comparing", Boolean(wanted.with));
    like.hidden = !wanted.like;
    like.firstElementChild.textContent = wanted.like ? `Similar to ${wanted.like}` : "";
  }

  function choose(select, value) {
    // A model in a kept address may be gone: show it all the same, the answer will say so.
    if (![...select.options].some((option) => option.value === value)) {
      select.add(new Option(value, value));
    }
    select.value = value;
  }

  // -- models ---------------------------------------------------------------------------------

  async function loadModels() {
    const reply = await ask("v1/models", {});
    const loaded = reply.models.filter((entry) => entry.loaded);
    const seen = new Set();
    const options = loaded.map((entry) => {
      // Newest first: the first of a name can be asked for by name.
      const value = seen.has(entry.name) ? entry.version : entry.name;
      seen.add(entry.name);
      return { value, label: value, entry };
    });
    names = new Map(loaded.map((entry) => [entry.version, entry.name]));
    const active = loaded.find((entry) => entry.active);
    model.replaceChildren(
      new Option(active ? `default · ${active.name}` : "default", "default"),
      ...options.map(({ value, label }) => new Option(label, value)),
    );
    other.replaceChildren(...options.map(({ value, label }) => new Option(label, value)));
    compare.disabled = options.length < 2;
    if (active) query.placeholder = `Search ${whole.format(active.documents)} documents as you type`;
    return { options, active };
  }

  function opponent() {
    // Against BM25 where it is there, else against whatever is not the model itself.
    const values = [...other.options].map((option) => option.value);
    const current = wanted.model === "default"
      ? model.options[0].textContent.split(" · ")[1]
      : wanted.model;
    const rest = values.filter((value) => value !== current);
    return rest.find((value) => value.includes("bm25")) ?? rest[0] ?? "default";
  }

  // -- asking ---------------------------------------------------------------------------------

  async function ask(path, options) {
    const headers = { ...options.headers };
    if (secret) headers.Authorization = `Bearer ${secret}`;
    const response = await fetch(path, { ...options, headers });
    const body = await response.json();
    if (response.status === 401) $("unlock").hidden = false;
    if (!response.ok) {
      const reasons = (body.errors ?? []).map((error) => `${error.field}: ${error.reason}`);
      throw new Error([body.detail, ...reasons].join(" "));
    }
    return body;
  }

  function request(name, signal) {
    if (wanted.like) {
      const id = wanted.like.split("/").map(encodeURIComponent).join("/");
      const asked = new URLSearchParams({ limit: LIMIT, model: name });
      return ask(`v1/documents/${id}/similar?${asked}`, { signal });
    }
    return ask("v1/search", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ query: wanted.q, limit: LIMIT, explain: true, model: name }),
      signal,
    });
  }

  async function search() {
    running?.abort();
    writeHash();
    showWanted();
    const idle = !wanted.like && !wanted.q.trim();
    empty.hidden = !idle;
    if (idle) {
      results.replaceChildren();
      results.classList.remove("stale");
      say("");
      return;
    }
    const mine = (running = new AbortController());
    results.classList.add("stale");
    const asked = wanted.with ? [wanted.model, wanted.with] : [wanted.model];
    try {
      const replies = await Promise.all(asked.map((name) => request(name, mine.signal)));
      if (mine.signal.aborted) return;
      results.replaceChildren(...replies.map((reply, i) => column(reply, replies[1 - i])));
      say(summary(replies));
    } catch (error) {
      if (mine.signal.aborted) return;
      mine.abort();
      results.replaceChildren();
      say(error instanceof TypeError ? "The server cannot be reached." : error.message, true);
    }
    results.classList.remove("stale");
  }

  function say(text, isError = false) {
    status.textContent = text;
    status.classList.toggle("error", isError);
  }

  function summary(replies) {
    const [first] = replies;
    const parts = [
      `${number.format(Math.max(...replies.map((reply) => reply.took_ms)))} ms`,
      `${whole.format(first.total)} documents ranked`,
    ];
    if (replies.every((reply) => reply.certified)) parts.push("exact");
    if (replies.length === 1) parts.push(first.model);
    return parts.join(" · ");
  }

  // -- showing --------------------------------------------------------------------------------

  function make(tag, className, text) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  function column(reply, rival) {
    const section = make("section", "column");
    section.dataset.model = reply.model;
    if (rival) {
      const name = names.get(reply.model) ?? reply.model;
      const heading = make("h2", "", name);
      if (name !== reply.model) heading.append(make("code", "", reply.model.slice(name.length + 1)));
      heading.append(make("small", "", `${number.format(reply.took_ms)} ms`));
      section.append(heading);
    }
    section.setAttribute("aria-label", `Answers of ${reply.model}`);
    if (!reply.hits.length) section.append(make("p", "none", "Nothing found."));
    const list = make("ol");
    const scale = scaleOf(reply.hits);
    const places = rival && new Map(rival.hits.map((found, i) => [found.id, i + 1]));
    list.append(...reply.hits.map((found) => hit(found, scale, places)));
    section.append(list);
    return section;
  }

  // One scale for a column, so that bars can be compared down the page: zero stands at the same
  // place in each, negative parts go left of it.
  function scaleOf(hits) {
    let low = 0;
    let high = 0;
    for (const { explanation } of hits) {
      if (!explanation) continue;
      const values = PARTS.map((part) => explanation[part]);
      high = Math.max(high, values.filter((v) => v > 0).reduce((a, b) => a + b, 0));
      low = Math.min(low, values.filter((v) => v < 0).reduce((a, b) => a + b, 0));
    }
    return { low, span: high - low || 1 };
  }

  function hit(found, scale, places) {
    const item = $("hit-template").content.firstElementChild.cloneNode(true);
    const at = (selector) => item.querySelector(selector);
    item.dataset.id = found.id;
    const title = typeof found.fields.title === "string" && found.fields.title.trim();
    const words = (found.explanation?.words ?? []).map((word) => word.word);
    at("h3").textContent = title || found.id;
    at(".id").textContent = found.id;
    at(".id").hidden = !title || title === found.id;
    at(".score").textContent = number.format(found.score);
    at(".score").setAttribute("aria-label", `score ${number.format(found.score)}`);
    marked(at(".snippet"), snippet(found.fields.text, words), words);
    if (places) {
      const place = places.get(found.id);
      const badge = at(".elsewhere");
      badge.hidden = false;
      badge.textContent = place ? `#${place} there` : "only here";
      badge.classList.toggle("only", !place);
    }
    if (found.explanation) {
      at(".parts").hidden = false;
      bar(at(".bar"), found.explanation, scale);
      numbers(at(".numbers"), found.explanation);
      chips(at(".words"), found.explanation.words);
    }
    at(".similar").addEventListener("click", () => {
      wanted.like = found.id;
      search();
      scrollTo({ top: 0 });
    });
    return item;
  }

  function bar(target, explanation, { low, span }) {
    let right = -low;
    let left = -low;
    for (const part of PARTS) {
      const value = explanation[part];
      if (!value) continue;
      const segment = make("i", value < 0 ? `${part} minus` : part);
      if (value < 0) left += value;
      segment.style.left = `${(100 * (value < 0 ? left : right)) / span}%`;
      segment.style.width = `${(100 * Math.abs(value)) / span}%`;
      if (value > 0) right += value;
      target.append(segment);
    }
    if (low < 0) {
      const zero = make("i", "zero");
      zero.style.left = `${(-100 * low) / span}%`;
      target.append(zero);
    }
    const said = PARTS.map((part) => `${part} ${number.format(explanation[part])}`);
    target.setAttribute("aria-label", said.join(", "));
  }

  function numbers(target, explanation) {
    for (const part of PARTS) {
      const line = make("span");
      line.dataset.part = part;
      line.dataset.value = explanation[part];
      const value = make("b", "", number.format(explanation[part]));
      line.append(make("i", `dot ${part}`), `${part} `, value);
      target.append(line);
    }
  }

  function chips(target, words) {
    target.hidden = !words.length;
    for (const { word, learned, exact } of words) {
      const total = learned + exact;
      const chip = make("li", total < 0 ? "minus" : "", word);
      const size = Math.abs(learned) + Math.abs(exact) || 1;
      chip.style.setProperty("--share", `${(100 * Math.abs(learned)) / size}%`);
      chip.title = `learned ${number.format(learned)}, exact ${number.format(exact)}`;
      chip.append(make("small", "", number.format(total)));
      target.append(chip);
    }
  }

  function pattern(words) {
    // A phrase comes in quotes, its words joined by spaces; between them anything but letters may
    // stand. Words of scripts without spaces are pieces of runs, so they have no edges to check.
    const sources = words
      .map((word) => word.split(/[^\p{L}\p{M}\p{N}]+/u).filter(Boolean).join("[^\\p{L}\\p{N}]+"))
      .filter(Boolean)
      .sort((a, b) => b.length - a.length)
      .map((source) => (UNSPACED.test(source) ? source : `(?<!${LETTER})${source}(?!${LETTER})`));
    return sources.length ? new RegExp(sources.join("|"), "giu") : null;
  }

  function snippet(text, words) {
    if (typeof text !== "string") return "";
    const flat = text.replace(/\s+/g, " ").trim();
    const found = pattern(words)?.exec(flat);
    if (!found || found.index < SNIPPET_CHARS / 2) return flat.slice(0, SNIPPET_CHARS * 2);
    const start = flat.lastIndexOf(" ", found.index - 50) + 1;
    return `… ${flat.slice(start, start + SNIPPET_CHARS * 2)}`;
  }

  function marked(target, text, words) {
    let end = 0;
    for (const found of text.matchAll(pattern(words) ?? /$^/g)) {
      target.append(text.slice(end, found.index), make("mark", "", found[0]));
      end = found.index + found[0].length;
    }
    target.append(text.slice(end));
  }

  // -- hands ----------------------------------------------------------------------------------

  query.addEventListener("input", () => {
    wanted.q = query.value;
    wanted.like = "";
    clearTimeout(timer);
    timer = setTimeout(search, DEBOUNCE_MS);
  });
  $("form").addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    search();
  });
  model.addEventListener("change", () => {
    wanted.model = model.value;
    search();
  });
  other.addEventListener("change", () => {
    wanted.with = other.value;
    search();
  });
  compare.addEventListener("change", () => {
    wanted.with = compare.checked ? opponent() : "";
    search();
  });
  $("unlike").addEventListener("click", () => {
    wanted.like = "";
    search();
    query.focus();
  });
  $("unlock").addEventListener("submit", (event) => {
    event.preventDefault();
    secret = $("key").value.trim();
    sessionStorage.setItem("key", secret);
    $("key").value = "";
    $("unlock").hidden = true;
    start();
  });
  addEventListener("hashchange", () => {
    readHash();
    search();
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && !typing) {
      event.preventDefault();
      query.select();
    } else if (event.key === "Escape" && document.activeElement !== query) {
      query.select();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (typing && document.activeElement !== query) return;
      const hits = [...results.querySelectorAll(".hit")];
      const now = hits.indexOf(document.activeElement.closest(".hit"));
      const next = now + (event.key === "ArrowDown" ? 1 : -1);
      if (now < 0 && event.key === "ArrowUp") return;
      event.preventDefault();
      (next < 0 ? query : hits[Math.min(next, hits.length - 1)])?.focus();
    }
  });

  function start() {
    say("");
    loadModels()
      .then(({ active }) => {
        search();
        if (!active) say("No model is loaded yet: train one, then activate it.", true);
      })
      .catch((error) => say(error.message, true));
  }

  readHash();
  showWanted();
  start();
})();
