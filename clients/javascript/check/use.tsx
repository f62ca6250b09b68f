// What users write compiles: the packages' types fit those of InstantSearch. Nothing runs it.

import { FullrankClient, type SearchReply } from "fullrank-client";
import { fullrankInstantSearch } from "fullrank-instantsearch-adapter";
import type { FullrankSearch } from "fullrank-search";
import instantsearch from "instantsearch.js";
import { InstantSearch } from "react-instantsearch";

const { searchClient, insightsClient } = fullrankInstantSearch({ url: "https://search.example" });
instantsearch({ searchClient, indexName: "shop", insights: { insightsClient } });
export const app = <InstantSearch searchClient={searchClient} insights={{ insightsClient }} />;

const client = new FullrankClient({ url: "https://search.example" });
interface Product {
  title: string;
}
export const found: Promise<SearchReply<Product>> = client.search({ query: "hat", sort: [{ field: "price" }] });
export const title = async (): Promise<string | undefined> => (await found).hits[0]?.fields.title;
// @ts-expect-error a misspelled field
void client.search({ query: "hat", limits: 3 });

document.querySelector<FullrankSearch>("fullrank-search")?.open();
