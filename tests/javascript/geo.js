// Places on a map. The address has the field, the point and the radius; the map stands in for Google's, which the
// widget takes from the page, and shows its markers as text.

import { fullrankInstantSearch } from "fullrank-instantsearch-adapter";
import instantsearch from "instantsearch.js";
import { configure, geoSearch, hits, searchBox, sortBy, stats } from "instantsearch.js/es/widgets";

class LatLng {
  constructor({ lat, lng }) {
    Object.assign(this, { lat, lng });
  }
  toJSON() {
    return { lat: this.lat, lng: this.lng };
  }
}

class LatLngBounds {
  constructor(...points) {
    this.points = points.map((point) => new LatLng(point));
  }
  extend(point) {
    this.points.push(point);
    return this;
  }
  corner(most) {
    return new LatLng({ lat: most(...this.points.map(({ lat }) => lat)), lng: most(...this.points.map(({ lng }) => lng)) });
  }
  getNorthEast() {
    return this.corner(Math.max);
  }
  getSouthWest() {
    return this.corner(Math.min);
  }
}

class OverlayView {}

class Marker {
  constructor({ map, position, __id }) {
    this.position = new LatLng(position);
    this.__id = __id;
    this.pin = document.createElement("li");
    this.pin.textContent = `${__id} ${position.lat} ${position.lng}`;
    map.element.append(this.pin);
  }
  getPosition() {
    return this.position;
  }
  setMap() {
    this.pin.remove();
  }
}

class GoogleMap {
  constructor(element) {
    this.element = element;
    this.listeners = [];
    window.map = this;
  }
  addListener(name, listener) {
    this.listeners.push([name, listener]);
  }
  fire(wanted) {
    for (const [name, listener] of [...this.listeners]) if (name === wanted) listener();
  }
  getBounds() {
    return this.bounds;
  }
  fitBounds(bounds) {
    this.bounds = bounds;
    this.fire("idle");
  }
  setCenter(center) {
    this.element.dataset.center = JSON.stringify(center);
    this.fire("idle");
  }
  setZoom() {}
  // What the hand of a visitor does.
  drag() {
    for (const name of ["dragstart", "center_changed", "idle"]) this.fire(name);
  }
}

const event = {
  addListenerOnce(map, name, listener) {
    let isDone = false;
    map.addListener(name, () => {
      if (!isDone) listener();
      isDone = true;
    });
  },
};
const asked = Object.fromEntries(new URLSearchParams(location.search));
const { searchClient } = fullrankInstantSearch({ url: "http://localhost:8000", ...(asked.place && { place: asked.place }) });
const search = instantsearch({ searchClient, indexName: "places" });
const part = (name) => {
  const made = document.createElement("div");
  made.id = name;
  document.getElementById("root").append(made);
  return made;
};
const { parameters = "{}", enableRefine = "false" } = asked;
search.addWidgets([
  searchBox({ container: part("box") }),
  stats({ container: part("stats") }),
  sortBy({ container: part("sort"), items: [{ label: "Best", value: "places" }, { label: "Stars", value: "places:stars:desc" }] }),
  hits({ container: part("hits"), templates: { item: (hit) => hit.objectID } }),
  configure(JSON.parse(parameters)),
  geoSearch({
    container: part("map"), enableRefine: enableRefine === "true",
    googleReference: { maps: { Map: GoogleMap, LatLng, LatLngBounds, OverlayView, Marker, ControlPosition: {}, event } },
  }),
]);
const error = part("error");
search.on("error", ({ message }) => (error.textContent = message));
search.start();
