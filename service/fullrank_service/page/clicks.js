// For operators: what visitors clicked, the experiment, and what the loop decided.

import { readAnalytics, readDecisions, readExperiment } from "./api.js";
import { element } from "./dom.js";
import { eValuesOf } from "./evalues.js";
import { choose } from "./models.js";
import { formatNumber } from "./score.js";

const whole = new Intl.NumberFormat("en");
const share = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 });
const moment = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });
const $ = (id) => document.getElementById(id);

const TABLES = [
  ["Frequent queries", "top"],
  ["Queries without hits", "top_without_hits"],
  ["Queries without clicks", "top_without_clicks"],
];
const VERDICTS = {
  open: "undecided so far",
  promote: "the candidate is better",
  stop: "the active model is better",
};

// Read and show everything of the last days. Raises ServiceError, also if the key is not one of an admin.
export async function showClicks(days) {
  choose($("days"), days);
  const [analytics, experiment, { decisions }] = await Promise.all([
    readAnalytics(days),
    readExperiment(),
    readDecisions(),
  ]);
  $("figures").replaceChildren(...figuresOf(analytics));
  $("incomplete").hidden = analytics.complete;
  $("queries").replaceChildren(...TABLES.map(([title, name]) => tableOf(title, analytics[name])));
  $("experiment").replaceChildren(...experimentOf(experiment));
  $("decisions").replaceChildren(...decisions.map(decisionOf));
  $("no-decisions").hidden = decisions.length > 0;
}

function figuresOf(analytics) {
  const figures = [
    ["Searches", whole.format(analytics.searches)],
    ["With a click", analytics.ctr === null ? "–" : share.format(analytics.ctr)],
    ["Mean clicked place", analytics.clicked_place === null ? "–" : analytics.clicked_place.toFixed(1)],
    ["Without hits", whole.format(analytics.without_hits)],
  ];
  return figures.map(([name, value]) => element("div", element("dt", name), element("dd", value)));
}

function tableOf(title, queries) {
  if (!queries.length) {
    return element("div", element("h3", title), element("p", "No query of three or more people."));
  }
  const heads = ["Query", "Searches", "With a click"].map((name) => element("th", { scope: "col" }, name));
  const rows = queries.map(({ query, searches, clicked }) => {
    const name = element("th", { scope: "row", dir: "auto" }, query || "(empty)");
    return element("tr", name, element("td", whole.format(searches)), element("td", whole.format(clicked)));
  });
  const table = element("table", { "aria-label": title }, element("thead", element("tr", ...heads)), element("tbody", ...rows));
  return element("div", element("h3", title), table);
}

function experimentOf(found) {
  if (!found) return [element("p", "No experiment is running.")];
  const until = new Date(Date.parse(found.started) + found.max_days * 86_400_000);
  const end = found.expired ? "Its time has ended." : `It ends on ${moment.format(until)}.`;
  const models = element(
    "p",
    element("code", found.candidate),
    " against ",
    element("code", found.active),
    `, in ${share.format(found.share)} of the searches since ${moment.format(new Date(found.started))}. ${end}`,
  );
  const votes = element(
    "p",
    `${countOf(found.wins, "vote")} for the candidate, ${whole.format(found.losses)} against, `,
    `e-value ${formatNumber(found.e_value)}: ${VERDICTS[found.verdict]}. The votes of a day (UTC) count once it is over.`,
  );
  return found.e_values.length ? [models, votes, eValuesOf(found)] : [models, votes];
}

function decisionOf(made) {
  const at = new Date(1000 * made.at);
  const item = element("li", element("time", { dateTime: at.toISOString() }, moment.format(at)), ` ${made.name}: ${made.did}`);
  const parts = [];
  if (made.candidate) parts.push(`${made.candidate} against ${made.active}`);
  if (made.e_value !== null) parts.push(`${made.wins} to ${made.losses} votes, e-value ${formatNumber(made.e_value)}`);
  for (const gate of made.gates ?? []) parts.push(`${gate.name} ${gate.passed ? "passed" : "failed"}: ${gate.reason}`);
  if (parts.length) item.append(element("ul", ...parts.map((part) => element("li", part))));
  if (made.e_values?.length) item.append(eValuesOf(made));
  return item;
}

const countOf = (count, noun) => `${whole.format(count)} ${noun}${count === 1 ? "" : "s"}`;
