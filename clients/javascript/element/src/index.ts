import { browserId, FullrankClient, FullrankError, type Hit, isAborted, piecesOf, type SearchReply } from "fullrank-client";
import css from "./style.css";

/** What the element says; set the attribute `labels` to a JSON object to translate it. */
export const LABELS = {
  open: "Search",
  placeholder: "Search",
  results: "Search results",
  recent: "Recent searches",
  clear: "Clear recent searches",
  close: "Close search",
  count: "{n} results",
  one: "1 result",
  none: "No results for “{query}”.",
  advice: "Check the spelling, or use fewer or other words.",
  meant: "Did you mean",
  waiting: "Still searching…",
  failed: "The search does not answer.",
  again: "Try again",
};

// A script tag names the service that serves it.
const HOME = document.currentScript instanceof HTMLScriptElement ? new URL(".", document.currentScript.src).href : "";
const PAUSE_MS = 150; // without a key before a search
const SETTLED_MS = 1_500; // under its results before a query counts as a search
const SLOW_MS = 600; // without an answer before the element says that it waits
const MAX_RECENT = 5;
const SNIPPET_WORDS = 24;
const MAX_QUERY_CHARS = 2_000; // what the service takes by default

/** The detail of the event `fullrank-select`; preventDefault() keeps the page where it is. */
export interface Selected {
  id: string;
  url: string | null;
  fields: Record<string, unknown>;
}

/**
 * `<fullrank-search>`: a button, and a dialog that searches while somebody types. With the attribute `inline` the box and
 * the results stand in the page.
 */
export class FullrankSearch extends HTMLElement {
  static observedAttributes = ["url", "key", "model", "private"];

  private client?: FullrankClient;
  private labels = LABELS;
  private input!: HTMLInputElement;
  private dialog?: HTMLDialogElement;
  private list!: HTMLElement;
  private meant!: HTMLElement;
  private extra!: HTMLElement;
  private status!: HTMLElement;
  private options: HTMLElement[] = [];
  private active = -1;
  private marked = ["title", "text"];
  private pause = 0;
  private settled = 0;
  private typing = true; // false where the service takes no events: then every answer counts as a search

  attributeChangedCallback(): void {
    this.client = undefined;
    this.marked = ["title", "text"];
  }

  connectedCallback(): void {
    if (!this.shadowRoot) this.build(this.attachShadow({ mode: "open" }));
    document.addEventListener("keydown", this.onShortcut);
  }

  disconnectedCallback(): void {
    document.removeEventListener("keydown", this.onShortcut);
  }

  /** Open the dialog, or go to the box. */
  open(): void {
    this.dialog?.showModal();
    this.input.focus();
    this.input.select();
    if (!this.input.value) this.showRecent();
  }

  close(): void {
    this.dialog?.close();
  }

  private build(root: ShadowRoot): void {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(css);
    root.adoptedStyleSheets = [sheet];
    this.labels = { ...LABELS, ...(JSON.parse(this.getAttribute("labels") ?? "{}") as Partial<typeof LABELS>) };
    const { labels } = this;
    this.input = element("input", {
      type: "text", role: "combobox", id: "box", part: "input", dir: "auto", autocomplete: "off", spellcheck: "false",
      autocapitalize: "off", enterkeyhint: "search", maxlength: String(MAX_QUERY_CHARS), placeholder: labels.placeholder,
      "aria-label": labels.placeholder, "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": "list",
    });
    this.input.addEventListener("input", () => this.onInput());
    this.input.addEventListener("keydown", (event) => this.onKey(event));
    this.list = element("div", { role: "listbox", id: "list", "aria-label": labels.results, hidden: "" });
    this.meant = element("div", { class: "extra", part: "meant" });
    this.extra = element("div", { class: "extra", part: "extra" });
    this.status = element("p", { role: "status", class: "status", dir: "auto" });
    const box = element("div", { class: "box" }, icon(), this.input);
    const panel = element("div", { class: "panel", part: "panel", role: "search", "aria-label": labels.open }, box,
      element("div", { class: "results", part: "results" }, this.meant, this.list, this.extra), this.status);
    if (this.hasAttribute("inline")) {
      root.append(panel);
      this.input.addEventListener("focus", () => this.input.value || this.showRecent());
      return;
    }
    box.append(button(labels.close, () => this.close(), "close", "Esc"));
    this.dialog = element("dialog", { "aria-label": labels.open }, panel);
    this.dialog.addEventListener("click", ({ target }) => target === this.dialog && this.close());
    const opening = button("", () => this.open(), "open");
    opening.setAttribute("part", "button");
    opening.append(icon(), element("span", {}, labels.open), element("kbd", { "aria-hidden": "true" }, isApple() ? "⌘ K" : "Ctrl K"));
    opening.setAttribute("aria-haspopup", "dialog");
    opening.setAttribute("aria-keyshortcuts", "Control+K Meta+K");
    root.append(opening, this.dialog);
  }

  private onShortcut = (event: KeyboardEvent): void => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k") return;
    if (event.defaultPrevented) return; // another element of the page took it
    event.preventDefault();
    if (this.dialog?.open) this.close();
    else this.open();
  };

  private onKey(event: KeyboardEvent): void {
    if (event.isComposing) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && this.options.length) {
      const count = this.options.length;
      this.activate(this.active < 0 && step < 0 ? count - 1 : (this.active + step + count) % count);
    } else if (event.key === "Enter" && this.options.length) {
      this.options[Math.max(this.active, 0)]!.dispatchEvent(
        new MouseEvent("click", { bubbles: true, cancelable: true, ctrlKey: event.ctrlKey, metaKey: event.metaKey }),
      );
    } else if (event.key === "Escape" && !this.dialog && this.input.value) {
      this.ask("");
    } else return;
    event.preventDefault();
  }

  private onInput(): void {
    clearTimeout(this.pause);
    clearTimeout(this.settled);
    if (!this.input.value.trim()) return this.showRecent();
    this.pause = window.setTimeout(() => void this.search(), PAUSE_MS);
  }

  private ask(query: string): void {
    this.input.value = query;
    this.input.focus();
    if (query) void this.search();
    else this.showRecent();
  }

  private get service(): FullrankClient {
    const text = (name: string) => this.getAttribute(name) ?? undefined;
    return (this.client ??= new FullrankClient({
      url: text("url") ?? HOME,
      key: text("key"),
      model: text("model"),
      client_id: this.hasAttribute("private") ? undefined : browserId(),
      application: text("application"),
    }));
  }

  private field(name: string): string {
    return this.getAttribute(`${name}-field`) ?? name;
  }

  private async search(): Promise<void> {
    const query = this.input.value;
    const slow = setTimeout(() => this.say(this.labels.waiting), SLOW_MS);
    try {
      const reply = await this.answer(query);
      if (query === this.input.value) this.show(query, reply);
    } catch (error) {
      if (isAborted(error)) return;
      console.error(error);
      this.choices([]);
      this.extra.replaceChildren(
        element("p", { class: "advice" }, this.labels.failed, " ", button(this.labels.again, () => void this.search(), "link")),
      );
      this.say(this.labels.failed, false);
    } finally {
      clearTimeout(slow);
    }
  }

  private async answer(query: string): Promise<SearchReply> {
    const filter = this.getAttribute("filter");
    const request = {
      query,
      typing: this.typing,
      limit: Number(this.getAttribute("limit") ?? 8),
      ...(filter && { filter: JSON.parse(filter) as Record<string, unknown> }),
    };
    const highlight = { fields: this.marked.map((name) => this.field(name)), words: SNIPPET_WORDS };
    try {
      return await this.service.search({ ...request, ...(this.marked.length && { highlight }) }, { group: "search" });
    } catch (error) {
      // No document has one of the fields.
      const wrong = error instanceof FullrankError ? (error.problem?.errors ?? []) : [];
      const places = wrong.map(({ field }) => /^(?:body\.)?highlight\.fields\.(\d+)/.exec(field)?.[1]);
      if (!places.length || !places.every((place) => place !== undefined)) throw error;
      this.marked = this.marked.filter((_, i) => !places.includes(String(i)));
      return this.answer(query);
    }
  }

  private show(query: string, { hits, query_id, did_you_mean, total, total_at_least }: SearchReply): void {
    const { labels } = this;
    this.settled = window.setTimeout(() => this.settle(query_id), SETTLED_MS);
    this.choices(hits.map((hit) => this.hit(query, query_id, hit)));
    const none = labels.none.replace("{query}", query);
    this.extra.replaceChildren();
    if (!hits.length) this.extra.append(element("p", { class: "advice", dir: "auto" }, none), element("p", {}, labels.advice));
    if (did_you_mean) {
      const meant = button(did_you_mean, () => this.ask(did_you_mean), "link");
      meant.dir = "auto";
      this.meant.append(element("p", {}, `${labels.meant} `, meant));
    }
    const count = total ?? total_at_least ?? hits.length;
    // The reason for an empty list is said aloud, and stands above the advice.
    if (!hits.length) this.say(none, false);
    else this.say(count === 1 ? labels.one : labels.count.replace("{n}", count.toLocaleString()));
  }

  // Nobody typed on, so that the answer counts as a search.
  private settle(queryId: string): void {
    this.service.report([{ action_name: "impression", query_id: queryId }]).catch((error) => {
      if (error instanceof FullrankError && [401, 403].includes(error.status)) this.typing = false;
    });
  }

  private hit(query: string, queryId: string, { id, fields, highlight }: Hit): HTMLElement {
    const url = this.address(fields[this.field("url")]);
    const part = (name: string, kind: string) => {
      const found = highlight?.[this.field(name)];
      const own = fields[this.field(name)];
      return element("span", { class: kind, part: kind, dir: "auto" },
        ...(found
          ? piecesOf(found.snippet, found.spans).map(({ text, isMarked }) => (isMarked ? element("mark", {}, text) : text))
          : [typeof own === "string" ? own.slice(0, 200) : ""]));
    };
    const title = part("title", "title");
    if (!title.textContent) title.textContent = id;
    const node = element("a", { ...(url && { href: url.href }), part: "hit" }, title,
      element("span", { class: "path", part: "path" }, url ? element("bdi", { dir: "ltr" }, trail(url)) : ""), part("text", "text"));
    const select = () => void this.service.click(queryId, id).catch(() => {});
    node.addEventListener("auxclick", ({ button }) => button === 1 && select());
    node.addEventListener("click", (event) => {
      select();
      this.remember(query);
      const detail: Selected = { id, url: url?.href ?? null, fields };
      const shown = this.dispatchEvent(
        new CustomEvent("fullrank-select", { detail, bubbles: true, composed: true, cancelable: true }),
      );
      if (!shown) event.preventDefault();
      if (!(event.ctrlKey || event.metaKey)) this.close();
    });
    return node;
  }

  private address(value: unknown): URL | null {
    if (typeof value !== "string") return null;
    try {
      const url = new URL(value, new URL(this.getAttribute("base") ?? "", document.baseURI));
      return /^https?:$/.test(url.protocol) ? url : null;
    } catch {
      return null;
    }
  }

  // -- the list of options -------------------------------------------------------------------------

  private choices(options: HTMLElement[]): void {
    this.options = options;
    this.meant.replaceChildren();
    options.forEach((node, i) => {
      node.id = `option-${i}`;
      node.tabIndex = -1;
      node.setAttribute("role", "option");
      node.addEventListener("pointermove", () => this.activate(i, false));
    });
    this.list.replaceChildren(...options);
    this.list.hidden = !options.length;
    this.list.setAttribute("aria-label", this.labels.results);
    this.input.setAttribute("aria-expanded", String(options.length > 0));
    this.activate(-1);
  }

  private activate(place: number, isScrolled = true): void {
    this.active = place;
    this.options.forEach((node, i) => node.setAttribute("aria-selected", String(i === place)));
    const node = this.options[place];
    if (node && isScrolled) node.scrollIntoView({ block: "nearest" });
    if (node) this.input.setAttribute("aria-activedescendant", node.id);
    else this.input.removeAttribute("aria-activedescendant");
  }

  private say(text: string, isSeen = true): void {
    this.status.textContent = text;
    this.status.classList.toggle("unseen", !isSeen);
  }

  // -- recent searches -----------------------------------------------------------------------------

  private get recentName(): string {
    return `fullrank-recent ${this.getAttribute("url") ?? HOME} ${this.getAttribute("model") ?? ""}`;
  }

  private recent(): string[] {
    try {
      const found: unknown = JSON.parse(localStorage.getItem(this.recentName) ?? "[]");
      return Array.isArray(found) ? found.filter((one) => typeof one === "string") : [];
    } catch {
      return [];
    }
  }

  private remember(query: string): void {
    if (this.hasAttribute("private")) return;
    const text = query.trim();
    const found = [text, ...this.recent().filter((one) => one !== text)].slice(0, MAX_RECENT);
    try {
      localStorage.setItem(this.recentName, JSON.stringify(found));
    } catch {
      // The browser keeps nothing for this page.
    }
  }

  private showRecent(): void {
    const found = this.recent();
    this.choices(
      found.map((text) => {
        const node = element("div", { class: "recent", dir: "auto", part: "recent" }, text);
        node.addEventListener("click", () => this.ask(text));
        return node;
      }),
    );
    this.list.setAttribute("aria-label", this.labels.recent);
    this.say("");
    const clear = button(this.labels.clear, () => {
      localStorage.removeItem(this.recentName);
      this.ask("");
    }, "link");
    this.extra.replaceChildren(...(found.length ? [element("p", {}, clear)] : []));
  }
}

function element<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Record<string, string> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[Name] {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function button(label: string, act: () => void, kind: string, shown = label): HTMLButtonElement {
  const made = element("button", { type: "button", class: kind }, shown);
  if (shown !== label) made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}

function icon(): SVGElement {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", "m13 13 5 5M8.5 15a6.5 6.5 0 1 1 0-13 6.5 6.5 0 0 1 0 13Z");
  svg.append(path);
  return svg;
}

// "guide › install" of https://docs.example/guide/install/
function trail(url: URL): string {
  const path = url.pathname.split("/").map((part) => part.replace(/^index\.\w+$|\.\w+$/, ""));
  const host = url.host === location.host ? [] : [url.host];
  const found = [...host, ...path, url.hash.slice(1)].filter(Boolean).join(" › ");
  try {
    return decodeURIComponent(found);
  } catch {
    return found;
  }
}

const isApple = (): boolean => /Mac|iPhone|iPad/.test(navigator.platform);

if (!customElements.get("fullrank-search")) customElements.define("fullrank-search", FullrankSearch);
