// The words of a query in the text of a document: snippets and marks.

const SNIPPET_CHARS = 260;
const LEAD_CHARS = 50; // Text shown before the first word of a snippet.
const MAX_CHARS = 50_000; // Longer texts are cut, so that typing stays smooth.
const LETTER = "[\\p{L}\\p{M}\\p{N}]";
const UNSPACED =
  /[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Hang}\p{sc=Bopo}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}\p{sc=Mymr}]/u;

const lettersOf = (text) => text.split(/[^\p{L}\p{M}\p{N}]+/u).filter(Boolean);
const keyOf = (text) => lettersOf(text).join(" ").toLowerCase();

// Return an expression that finds the words, longest first; null without words.
function patternOf(words) {
  // A phrase comes in quotes, its words joined by spaces; in the text anything but letters may
  // stand between them. Scripts without spaces have no word edges to check.
  const sources = words
    .map((word) => lettersOf(word).join("[^\\p{L}\\p{N}]+"))
    .filter(Boolean)
    .sort((a, b) => b.length - a.length)
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

// Return the part of a text around the words that moved the score most.
//   words  [{ word, weight }], the weight being a word's share of the score
export function snippetOf(text, words) {
  const plain = plainText(text);
  const start = startOf(plain, bestMatch(plain, words));
  const end = endOf(plain, start + SNIPPET_CHARS);
  return `${start ? "… " : ""}${plain.slice(start, end)}${end < plain.length ? " …" : ""}`;
}

// Return where the window of a snippet with the largest sum of weights has its first match.
// A word counts once in a window; of equal windows the first wins.
function bestMatch(plain, words) {
  const pattern = patternOf(words.map(({ word }) => word));
  if (!pattern) return 0;
  const weights = new Map(words.map(({ word, weight }) => [keyOf(word), weight]));
  const matches = [...plain.matchAll(pattern)].map((match) => ({
    from: match.index,
    to: match.index + match[0].length,
    key: keyOf(match[0]),
  }));
  let best = { from: 0, sum: -Infinity };
  matches.forEach((first, i) => {
    const seen = new Set();
    let sum = 0;
    for (let j = i; j < matches.length && matches[j].to <= first.from + SNIPPET_CHARS - LEAD_CHARS; j++) {
      if (seen.has(matches[j].key)) continue;
      seen.add(matches[j].key);
      sum += Math.max(weights.get(matches[j].key) ?? 0, 0);
    }
    if (sum > best.sum) best = { from: first.from, sum };
  });
  return best.from;
}

// Start at a sentence if one begins shortly before, else at a word.
function startOf(plain, match) {
  if (match <= LEAD_CHARS) return 0;
  const lead = plain.slice(match - LEAD_CHARS, match);
  const sentenceEnd = [...lead.matchAll(/[.!?:]\s|。/gu)].pop();
  const skipped = sentenceEnd ? sentenceEnd.index + sentenceEnd[0].length : lead.indexOf(" ") + 1;
  return match - LEAD_CHARS + skipped;
}

function endOf(plain, end) {
  if (end >= plain.length) return plain.length;
  const space = plain.lastIndexOf(" ", end);
  return space > end - LEAD_CHARS ? space : end;
}

// Append a text to an element, with the words marked. Nothing in it is read as markup.
export function appendMarked(target, text, words) {
  const pattern = patternOf(words.map(({ word }) => word));
  let end = 0;
  for (const match of pattern ? text.matchAll(pattern) : []) {
    const mark = document.createElement("mark");
    mark.textContent = match[0];
    target.append(text.slice(end, match.index), mark);
    end = match.index + match[0].length;
  }
  target.append(text.slice(end));
}
