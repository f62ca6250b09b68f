// The address bar: what the visitor asked for, kept in the hash so that it can be shared and
// Back and Forward work. The hash is never sent to a server, so queries stay out of access logs.

const DEFAULTS = { view: "", q: "", similar: "", model: "default", with: "", mode: "", filter: "", days: "7" };

// Return what the address asks for:
//   view     "" (search), "match", "models" or "clicks"
//   q        the query
//   similar  id of the document whose similar documents are shown instead
//   model    alias, name or version; with: a second model, shown side by side
//   mode     "auto", "exact" or "fast"; filter: a filter as JSON. Empty: the service's default.
//   days     how many days the view of clicks looks back
export function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const wanted = {};
  for (const [name, fallback] of Object.entries(DEFAULTS)) wanted[name] = given.get(name) || fallback;
  return wanted;
}

export function urlOf(wanted) {
  const given = new URLSearchParams();
  for (const [name, fallback] of Object.entries(DEFAULTS)) {
    if (wanted[name] !== fallback) given.set(name, wanted[name]);
  }
  return given.size ? `#${given}` : location.pathname + location.search;
}

// Add a history entry. `state` is kept with it: see app.js.
export function pushAddress(wanted, state = null) {
  history.pushState(state, "", urlOf(wanted));
}

// Change the current history entry and keep its state.
export function replaceAddress(wanted) {
  history.replaceState(history.state, "", urlOf(wanted));
}
