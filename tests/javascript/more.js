// Widgets of InstantSearch.js that the shop page does not have.

import { fullrankInstantSearch } from "fullrank-instantsearch-adapter";
import instantsearch from "instantsearch.js";
import {
  breadcrumb, configure, hierarchicalMenu, hitsPerPage, infiniteHits, menu, numericMenu, rangeSlider, stats,
} from "instantsearch.js/es/widgets";

const { searchClient } = fullrankInstantSearch({ url: "http://localhost:8000", highlight: ["title"] });
const search = instantsearch({ searchClient, indexName: "shop" });
const part = (name) => {
  const made = document.createElement("div");
  made.id = name;
  document.getElementById("root").append(made);
  return made;
};
const attributes = ["categories.lvl0", "categories.lvl1", "categories.lvl2"];
search.addWidgets([
  stats({ container: part("stats") }),
  menu({ container: part("menu"), attribute: "colour" }),
  numericMenu({
    container: part("numeric"), attribute: "price",
    items: [{ label: "All" }, { label: "Up to 50", end: 50 }, { label: "50 to 100", start: 50, end: 100 }],
  }),
  rangeSlider({ container: part("slider"), attribute: "rating" }),
  hierarchicalMenu({ container: part("categories"), attributes }),
  breadcrumb({ container: part("breadcrumb"), attributes }),
  hitsPerPage({
    container: part("per-page"),
    items: [{ label: "10", value: 10, default: true }, { label: "40", value: 40 }],
  }),
  infiniteHits({ container: part("hits"), templates: { item: (hit) => hit.title } }),
  configure({ filters: '{"in_stock": true}', fullrank: { boost: [{ field: "rating", log: true, weight: 5 }] } }),
]);
search.on("error", ({ error }) => console.error(String(error)));
search.start();
