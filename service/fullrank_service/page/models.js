// The two menus of models.

import { listModels } from "./api.js";

// Fill both menus. Return the active model (undefined if none is loaded), how many can be chosen,
// the name of each version, and what the page needs to know of each model by the value that chooses it.
export async function fillMenus(model, other) {
  const { models } = await listModels();
  const loaded = models.filter((entry) => entry.loaded);
  const active = loaded.find((entry) => entry.active);
  // The list is newest first, and a name means its newest version: older ones go by version.
  const values = loaded.map((entry, i) =>
    loaded.findIndex(({ name }) => name === entry.name) === i ? entry.name : entry.version,
  );
  const options = () => values.map((value) => new Option(value, value));
  const label = active ? `default · ${active.name}` : "default";
  model.replaceChildren(new Option(label, "default"), ...options());
  other.replaceChildren(...options());
  return {
    active,
    count: values.length,
    entryOf: (value) => (value === "default" ? active : loaded[values.indexOf(value)] ?? loaded.find(({ version }) => version === value)),
    names: new Map(loaded.map((entry) => [entry.version, entry.name])),
  };
}

// Return the names of the fields that a model reads, in its order; of a model that does not tell, the usual ones.
export function searchedOf(entry) {
  return entry?.searched?.length ? entry.searched : ["title", "text"];
}

// Select a value; an address may name a model that is not loaded, which the service then reports.
export function choose(menu, value) {
  if (![...menu.options].some((option) => option.value === value)) menu.add(new Option(value, value));
  menu.value = value;
}

// Return what to compare a model with: BM25 if it is loaded, else any other model.
export function opponentOf(wantedModel, active, other) {
  const current = wantedModel === "default" ? active?.name : wantedModel;
  const rest = [...other.options].map((option) => option.value).filter((value) => value !== current);
  return rest.find((value) => value.includes("bm25")) ?? rest[0] ?? "default";
}
