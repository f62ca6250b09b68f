// The view of all models: what is on disk, what serves, and the swap.

import { activate, listModels } from "./api.js";
import { element } from "./dom.js";

const whole = new Intl.NumberFormat("en");
const size = new Intl.NumberFormat("en", { style: "unit", unit: "megabyte", maximumFractionDigits: 1 });
const moment = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });
const $ = (id) => document.getElementById(id);

// Show the list.
//   onSwapped  called with the answer of the service after a swap
//   onFailed   called with the error of one that failed
// Raises ServiceError.
export async function showModels(onSwapped, onFailed) {
  const { models, workers } = await listModels();
  $("versions").replaceChildren(...models.map((entry) => itemOf(entry, onSwapped, onFailed)));
  return { models, workers };
}

function itemOf(entry, onSwapped, onFailed) {
  const parts = [moment.format(new Date(entry.created)), size.format(entry.bytes / 1e6)];
  if (entry.documents !== null) parts.push(`${whole.format(entry.documents)} documents`);
  return element(
    "li",
    { "data-version": entry.version },
    element("h3", entry.name),
    element("span", { className: entry.active ? "state active" : "state" }, stateOf(entry)),
    element("code", entry.version),
    element("p", parts.join(" · ")),
    ...(entry.failure ? [element("p", { className: "failure" }, entry.failure)] : []),
    ...(entry.active ? [] : [swapButton(entry, onSwapped, onFailed)]),
  );
}

function stateOf(entry) {
  if (entry.active) return "active";
  if (entry.failure) return "refused";
  return entry.loaded ? "loaded" : "on disk";
}

function swapButton({ version }, onSwapped, onFailed) {
  const label = `Make active: ${version}`;
  const button = element("button", { type: "button", className: "main", "aria-label": label }, "Make active");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      // The key stays in its box: it is kept nowhere else.
      onSwapped(await activate(version, $("admin-key").value.trim()));
    } catch (error) {
      button.disabled = false;
      onFailed(error);
      if (error.status === 401 || error.status === 403) $("admin-key").focus();
    }
  });
  return button;
}
