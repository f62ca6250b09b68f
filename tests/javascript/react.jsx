// The widgets of React InstantSearch.

import { fullrankInstantSearch } from "fullrank-instantsearch-adapter";
import { createRoot } from "react-dom/client";
import {
  Configure, CurrentRefinements, HierarchicalMenu, Highlight, Hits, InstantSearch, Pagination, RangeInput,
  RefinementList, SearchBox, Snippet, SortBy, Stats, ToggleRefinement,
} from "react-instantsearch";

const { searchClient, insightsClient } = fullrankInstantSearch({ url: "http://localhost:8000" });

const Product = ({ hit, sendEvent }) => (
  <article>
    <h3><a href={hit.url} onClick={() => sendEvent("click", hit, "Product opened")}>
      <Highlight hit={hit} attribute="title" />
    </a></h3>
    <p><Snippet hit={hit} attribute="text" /></p>
    <p>{hit.price} €</p>
  </article>
);
const ORDERS = [
  { label: "Best match", value: "shop" },
  { label: "Cheapest first", value: "shop:price:asc" },
];

createRoot(document.getElementById("root")).render(
  <InstantSearch
    searchClient={searchClient} indexName="shop" insights={{ insightsClient }}
    future={{ preserveSharedStateOnUnmount: true }}
  >
    <Configure hitsPerPage={12} attributesToSnippet={["text:8"]} />
    <SearchBox />
    <Stats />
    <SortBy items={ORDERS} />
    <CurrentRefinements />
    <HierarchicalMenu attributes={["categories.lvl0", "categories.lvl1", "categories.lvl2"]} />
    <RefinementList attribute="brand" searchable />
    <RangeInput attribute="price" />
    <ToggleRefinement attribute="in_stock" label="In stock" />
    <Hits hitComponent={Product} />
    <Pagination />
  </InstantSearch>,
);
