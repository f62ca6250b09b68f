// The widgets of InstantSearch.js on a Fullrank service. Only the first lines differ from a page on another engine.

import { fullrankInstantSearch } from "fullrank-instantsearch-adapter";
import instantsearch from "instantsearch.js";
import {
  clearRefinements, configure, currentRefinements, hierarchicalMenu, hits, pagination, rangeInput, ratingMenu,
  refinementList, searchBox, sortBy, stats, toggleRefinement,
} from "instantsearch.js/es/widgets";

const { searchClient, insightsClient } = fullrankInstantSearch({ url: "http://localhost:8000" });

const search = instantsearch({
  searchClient,
  indexName: "shop", // a bundle; "default" is the active version, whatever its name
  insights: { insightsClient },
  routing: true,
  future: { preserveSharedStateOnUnmount: true },
});

search.addWidgets([
  searchBox({ container: "#searchbox", placeholder: "Search products" }),
  configure({ hitsPerPage: 12, attributesToSnippet: ["text:8"] }),
  hits({
    container: "#hits",
    templates: {
      item: (hit, { html, components, sendEvent }) => html`
        <article>
          <h3><a href=${hit.url} onClick=${() => sendEvent("click", hit, "Product opened")}>
            ${components.Highlight({ hit, attribute: "title" })}
          </a></h3>
          <p>${components.Snippet({ hit, attribute: "text" })}</p>
          <p>${hit.brand} · ${hit.price} € · ${"★".repeat(hit.rating)}${hit.in_stock ? "" : " · sold out"}</p>
        </article>`,
      empty: (results, { html }) => html`<p>Nothing found for “${results.query}”.</p>`,
    },
  }),
  stats({ container: "#stats" }),
  sortBy({
    container: "#sort",
    items: [
      { label: "Best match", value: "shop" },
      { label: "Cheapest first", value: "shop:price:asc" },
      { label: "Dearest first", value: "shop:price:desc" },
    ],
  }),
  hierarchicalMenu({
    container: "#categories",
    attributes: ["categories.lvl0", "categories.lvl1", "categories.lvl2"],
  }),
  refinementList({ container: "#brands", attribute: "brand", searchable: true }),
  rangeInput({ container: "#price", attribute: "price" }),
  ratingMenu({ container: "#rating", attribute: "rating" }),
  toggleRefinement({ container: "#stock", attribute: "in_stock", templates: { labelText: () => "In stock" } }),
  currentRefinements({ container: "#current" }),
  clearRefinements({ container: "#clear" }),
  pagination({ container: "#pages" }),
]);
search.on("error", ({ error }) => console.error(String(error)));
search.start();
