// The text of a document as plain text, with marked words.

import { element } from "./dom.js";

const SNIPPET_CHARS = 260;
const MAX_CHARS = 50_000; // Longer texts are cut, so that typing stays smooth.
const LETTER = "[\\p{L}\\p{M}\\p{N}]";
const UNSPACED =
  /[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Hang}\p{sc=Bopo}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}\p{sc=Mymr}]/u;
// Characters for private use, which stand for the ends of spans while a snippet becomes plain text.
const [END, ...STARTS] = "\uE000\uE001\uE002";
const KINDS = ["word", "meaning"];

// Return an expression that finds the words, longest first; null without words.
function patternOf(words) {
  // Scripts without spaces have no word edges to check.
  const sources = [...new Set(words)]
    .filter((word) => /[\p{L}\p{N}]/u.test(word))
    .sort((a, b) => b.length - a.length)
    .map((word) => word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"))
    .map((source) => (UNSPACED.test(source) ? source : `(?<!${LETTER})${source}(?!${LETTER})`));
  return sources.length ? new RegExp(sources.join("|"), "giu") : null;
}

// A line such as "======" or "|---|---|".
const isRule = (line) => /[-=~^"#*+`_]{3}/.test(line) && /^[-=~^"#*+`_|:\s]+$/.test(line);
const UNDERLINE = /^\s*([-=~^"#*+`_])\1{2,}\s*$/;

// Return a text on one line, without the marks of reStructuredText and Markdown.
// Every repetition is bounded or local to a line, so that no text takes quadratic time.
export function plainText(text) {
  const lines = text.slice(0, MAX_CHARS).split("\n");
  const isHeading = (i) =>
    /[\p{L}\p{N}]/u.test(lines[i]) &&
    (/^#{1,6} /.test(lines[i]) || (i + 1 < lines.length && UNDERLINE.test(lines[i + 1])));
  return lines
    .map((line, i) => {
      if (isHeading(i)) return `${line.replace(/^#+ /, "").trim().replace(/:$/, "")}:`;
      return isRule(line) ? "" : line;
    })
    .join("\n")
    .replace(/(^|[\s|:])[-=~^#*+_"'`]{3,}(?=[\s|:]|$)/g, "$1") // rules inside a line
    .replace(/^[ \t]*\.\. [\w:-]{1,50}::/gm, "") // directives
    .replace(/::(?=\s|$)/g, ":") // starts of code blocks
    .replace(/:[a-z]{1,20}(?::[a-z]{1,20})?:(?=`)/g, "") // names of roles
    .replace(/!?\[([^\]\n]{0,200})\]\([^()\s]{0,500}\)/g, "$1") // links
    .replace(/(``|`|\*\*)(?=\S)([^\n]{0,200}?\S)\1/g, "$2") // code and bold
    .replace(/(^|[\s(])\*(\w[^*\n]{0,100})(?<=\S)\*(?=[\s).,;:]|$)/g, "$1$2") // emphasis
    .replace(/(^|\s)>>>(?=\s)/g, "$1") // prompts
    .replace(/\s+/g, " ")
    .trim();
}

// Append the begin of a text.
export function appendBegin(target, text) {
  const plain = plainText(text);
  if (plain.length <= SNIPPET_CHARS) return target.append(plain);
  const space = plain.lastIndexOf(" ", SNIPPET_CHARS);
  target.append(`${plain.slice(0, space > SNIPPET_CHARS - 50 ? space : SNIPPET_CHARS)} …`);
}

// Append a snippet of the service.
//   snippet  a part of the text
//   spans    [[from, to, "word" | "meaning"]], in code points of the snippet
//   lead     the most characters before the first word of the query, about: more would push it out of a narrow box
export function appendSnippet(target, text, { snippet, spans }, lead = Infinity) {
  const points = [...snippet.replace(/[\uE000-\uE002]/g, "\uFFFD")];
  const pieces = [];
  let end = 0;
  for (const [from, to, kind] of spans) {
    pieces.push(...points.slice(end, from), STARTS[KINDS.indexOf(kind)], ...points.slice(from, to), END);
    end = to;
  }
  const whole = plainText([...pieces, ...points.slice(end)].join(""));
  const first = whole.indexOf(STARTS[0]);
  // A word that is cut goes, and half a character where nothing is between words.
  const before = whole.slice(first - lead, first).replace(/^\S*\s|^[\uDC00-\uDFFF]/, "");
  const plain = first > 2 * lead ? before + whole.slice(first) : whole;
  const at = text.indexOf(snippet);
  if (at > 0 || plain !== whole) target.append("… ");
  let kind = null;
  for (const piece of plain.split(/([\uE000-\uE002])/)) {
    if (piece === END) kind = null;
    else if (STARTS.includes(piece)) kind = KINDS[STARTS.indexOf(piece)];
    else if (piece) target.append(kind ? markOf(piece, kind) : piece);
  }
  if (at >= 0 && at + snippet.length < text.trimEnd().length) target.append(" …");
}

// Return the marked words of a kind, as they are written in snippets: "word", those of the query, or "meaning".
export function markedWords(highlight, wanted = "word") {
  return Object.values(highlight ?? {}).flatMap(({ snippet, spans }) => {
    const points = [...snippet];
    return spans.filter(([, , kind]) => kind === wanted).map(([from, to]) => points.slice(from, to).join(""));
  });
}

// Append a text to an element, with the words marked. Nothing in it is read as markup.
export function appendMarked(target, text, words) {
  const pattern = patternOf(words);
  let end = 0;
  for (const match of pattern ? text.matchAll(pattern) : []) {
    target.append(text.slice(end, match.index), markOf(match[0], "word"));
    end = match.index + match[0].length;
  }
  target.append(text.slice(end));
}

function markOf(text, kind) {
  const title = kind === "meaning" ? "not a word of the query, but near it in meaning" : "";
  return element("mark", { className: kind, title }, text);
}
