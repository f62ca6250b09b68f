// The autocomplete widget of InstantSearch.js: completions, and products below them.

import { fullrankInstantSearch } from "fullrank-instantsearch-adapter";
import instantsearch from "instantsearch.js";
import { autocomplete } from "instantsearch.js/es/widgets";

const { searchClient } = fullrankInstantSearch({ url: "http://localhost:8000" });
const search = instantsearch({ searchClient });
search.addWidgets([
  autocomplete({
    container: "#root",
    showQuerySuggestions: { indexName: "shop:completions" },
    indices: [{ indexName: "shop", getQuery: (item) => item.title, templates: { item: ({ item }) => item.title } }],
  }),
]);
search.on("error", ({ error }) => console.error(String(error)));
search.start();
window.searchClient = searchClient;
