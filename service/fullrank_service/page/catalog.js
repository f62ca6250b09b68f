// The view of all models: what is on disk, what serves, and the swap.

import { activate, listModels } from "./api.js";

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
  const item = document.createElement("li");
  item.dataset.version = entry.version;
  const name = document.createElement("h3");
  name.textContent = entry.name;
  const state = document.createElement("span");
  state.className = entry.active ? "state active" : "state";
  state.textContent = stateOf(entry);
  const version = document.createElement("code");
  version.textContent = entry.version;
  const facts = document.createElement("p");
  const parts = [moment.format(new Date(entry.created)), size.format(entry.bytes / 1e6)];
  if (entry.documents !== null) parts.push(`${whole.format(entry.documents)} documents`);
  facts.textContent = parts.join(" · ");
  item.append(name, state, version, facts);
  if (entry.failure) {
    const failure = document.createElement("p");
    failure.className = "failure";
    failure.textContent = entry.failure;
    item.append(failure);
  }
  if (!entry.active) item.append(swapButton(entry, onSwapped, onFailed));
  return item;
}

function stateOf(entry) {
  if (entry.active) return "active";
  if (entry.failure) return "refused";
  return entry.loaded ? "loaded" : "on disk";
}

function swapButton({ version }, onSwapped, onFailed) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "main";
  button.textContent = "Make active";
  button.setAttribute("aria-label", `Make active: ${version}`);
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
