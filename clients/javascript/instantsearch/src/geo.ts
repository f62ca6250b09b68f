// Places: from the parameters of a query to a filter and an order, and from a stored place to a marker of a map.

import type { SearchRequest } from "fullrank-client";
import type { Params } from "./request.js";

/** The field of Algolia's records; here it holds `lat` and `lon`. */
export const GEOLOC = "_geoloc";

type Sort = NonNullable<SearchRequest["sort"]>;

const INSTEAD = 'Use aroundLatLng ("latitude,longitude") with aroundRadius (metres, or "all"), and enableRefine: false in geoSearch.';

/** The filter and the order that a query asks for a field of places. Raises an Error for what has no meaning here. */
export function aroundOf(params: Params, place: string): { within: Record<string, unknown>[]; near: Sort } {
  for (const name of ["insideBoundingBox", "insidePolygon", "aroundLatLngViaIP"] as const) {
    if (params[name]) throw new Error(`${name}: Fullrank finds places by their distance from a point. ${INSTEAD}`);
  }
  const { aroundLatLng, aroundRadius = "all", fullrank } = params;
  if (!aroundLatLng) return { within: [], near: [] };
  const point = pointOf(aroundLatLng);
  if (!point) throw new Error(`aroundLatLng: ${aroundLatLng} is not "latitude,longitude"`);
  const metres = Number(aroundRadius);
  if (aroundRadius !== "all" && !(metres > 0)) throw new Error(`aroundRadius: ${aroundRadius} is neither metres nor "all"`);
  const at = { lat: point.lat, lon: point.lng };
  return {
    within: aroundRadius === "all" ? [] : [{ [place]: { within: { ...at, km: metres / 1000 } } }],
    // The service orders either by fields or by scores that these change.
    near: fullrank?.boost?.length || fullrank?.diversity ? [] : [{ field: place, near: at }],
  };
}

/** A stored place as InstantSearch has it, of several the first; undefined for other values. */
export function pointOf(value: unknown): { lat: number; lng: number } | undefined {
  const one: any = Array.isArray(value) ? value[0] : value;
  const numbers = typeof one === "string" ? one.split(",").map((text) => (text.trim() ? Number(text) : NaN)) : [one?.lat, one?.lon];
  const [lat, lng] = numbers;
  return numbers.length === 2 && Number.isFinite(lat) && Number.isFinite(lng) ? { lat, lng } : undefined;
}
