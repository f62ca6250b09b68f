// Why a document was found, for visitors: reasons in plain words, each of which the answer of the service says.

import { markedWords } from "./text.js";

const MAX_REASONS = 3;
const MAX_WORDS = 5;
const OFTEN = 5; // From so many clicks on a document was chosen often.
const FEW_HITS = 4; // Fewer say nothing about which words most hits have.

// Return the reasons for a hit, one of the hits of an answer; [] if the answer gives none.
export function reasonsOf(hit, hits) {
  const { rule, highlight, explanation } = hit;
  const contained = wordsOf(highlight, "word").filter((word, i, all) => all.length === 1 || !/^[a-z]$/i.test(word));
  const related = wordsOf(highlight, "meaning").filter((word) => isTelling(word, hits));
  const reasons = [
    rule && "Placed here by this site",
    contained.length && `Contains: ${listOf(contained)}`,
    related.length && `Related to your words: ${listOf(related)}`,
    chosen(explanation?.clicks ?? {}),
  ].filter(Boolean);
  if (!reasons.length && explanation?.dense > 0) return ["Related to your words"];
  return reasons.slice(0, MAX_REASONS);
}

const listOf = (words) => words.slice(0, MAX_WORDS).join(", ");
const fold = (word) => word.toLowerCase();

// The different marked words, as the document writes them first.
function wordsOf(highlight, kind) {
  const words = new Map();
  for (const word of markedWords(highlight, kind)) if (!words.has(fold(word))) words.set(fold(word), word);
  return [...words.values()];
}

// Numbers, "of", and what most hits have tell no visitor why this one is there.
function isTelling(word, hits) {
  if (!/\p{L}/u.test(word) || /^[a-z]{1,2}$/i.test(word)) return false;
  const having = hits.filter(({ highlight }) => wordsOf(highlight, "meaning").map(fold).includes(fold(word)));
  return hits.length < FEW_HITS || having.length <= hits.length / 2;
}

// Clicks are a reason where they raise the score.
function chosen({ after_query: after = 0, lexical = 0, in_all: inAll = 0, bias = 0 }) {
  if (after >= OFTEN && lexical > 0) return "Often chosen by others after the same search";
  if (inAll >= OFTEN && bias > 0) return "Often chosen by others";
  return after > 0 && lexical > 0 && "Chosen before after the same search";
}
