// Completion of the query: a combobox after the pattern of the ARIA Authoring Practices, whose list only suggests.

import { element } from "./dom.js";

const DEBOUNCE_MS = 90;

// Complete what is typed into an input.
//   input     has the role combobox and controls the list
//   list      an empty list box
//   complete  returns a promise of the completions of a text: [{ text, kind }]; called with a text and a signal
//   onChoose  called when the visitor has chosen a completion, which is then in the input
// Return a function that closes the list.
export function attachCompletion(input, list, complete, onChoose) {
  let running = null;
  let timer = 0;

  const options = () => [...list.children];
  const active = () => list.querySelector("[aria-selected=true]");

  function close() {
    clearTimeout(timer);
    running?.abort();
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function select(option) {
    active()?.setAttribute("aria-selected", "false");
    if (!option) return input.removeAttribute("aria-activedescendant");
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest", inline: "nearest" });
    input.setAttribute("aria-activedescendant", option.id);
  }

  function choose(option) {
    input.value = option.dataset.text;
    close();
    onChoose();
  }

  async function suggest() {
    running?.abort();
    const typed = input.value;
    const mine = (running = new AbortController());
    // Completions are a help: where there are none, for whatever cause, the search goes on.
    const found = typed.trim() ? await complete(typed, mine.signal).catch(() => []) : [];
    if (mine.signal.aborted) return;
    const others = found.filter(({ text }) => text.toLowerCase() !== typed.trim().toLowerCase());
    if (!others.length || document.activeElement !== input) return close();
    list.replaceChildren(...others.map((completion, i) => optionOf(completion, typed, i)));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    input.removeAttribute("aria-activedescendant");
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(suggest, DEBOUNCE_MS);
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && list.hidden) return close();
    if (list.hidden || event.isComposing) return;
    const now = options().indexOf(active());
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      // One place besides the options is the input itself.
      const places = list.childElementCount + 1;
      select(options()[(now + 1 + (event.key === "ArrowDown" ? 1 : -1) + places) % places - 1]);
    } else if (event.key === "Enter" && now >= 0) {
      choose(options()[now]);
    } else if (event.key === "Enter") {
      return close();
    } else if (event.key === "Escape") {
      close();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  });
  // A press would move the focus and so close the list before the click.
  list.addEventListener("mousedown", (event) => event.preventDefault());
  list.addEventListener("click", (event) => {
    const option = event.target.closest("[role=option]");
    if (option) choose(option);
  });
  return close;
}

// Return an option; what the visitor would not have to type any more is bold.
function optionOf({ text }, typed, i) {
  const shared = text.toLowerCase().startsWith(typed.toLowerCase()) ? typed.length : 0;
  const option = { id: `completion-${i}`, role: "option", "aria-selected": false, "data-text": text, title: text, dir: "auto" };
  return element("li", option, text.slice(0, shared), element("b", text.slice(shared)));
}
