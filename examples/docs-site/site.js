// A site of its own writes one tag instead: <script type="module" src="https://…/fullrank-search.js"></script>, and the
// address of its service as the attribute `url` of <fullrank-search>.
import "../../clients/javascript/element/dist/fullrank-search.js";

const service = window.FULLRANK_URL ?? "http://localhost:8000";
for (const search of document.querySelectorAll("fullrank-search")) {
  search.setAttribute("url", service);
  search.setAttribute("model", "docs");
}
