"""A second, plain implementation of the linear family: f(q, d) = qᵀWd with a full W, all in float64.

Nothing here calls the model: only the segmentation into words is shared. Features of a text are a dictionary, W is a
matrix over every word that occurs, and a score is one product of vectors with it.

    W = a · U_fullᵀ V_full + Σ_f D_f        (per field, as the diagonals differ; phrases are columns of their own)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from fullrank.models.contract import Parts
from fullrank.models.corrections import KEPT, MAX_CORRECTED
from fullrank.storage.encoding import Encoded
from fullrank.text.compounds import split_digits
from fullrank.text.folding import fold, singular, spellings
from fullrank.text.words import trigrams as trigrams_of
from fullrank.text.words import words
from tests.contract.twins.spelling import corrected

Float64 = npt.NDArray[np.float64]
Weights = dict[str, float]


def unit(weights: Weights) -> Weights:
    """Divided by the Euclidean norm; zero stays zero."""
    norm = np.sqrt(sum(value * value for value in weights.values())) or 1.0
    return {word: value / norm for word, value in weights.items()}


def damped(tf: float) -> float:
    """1 + ln tf; below one occurrence, tf."""
    return float(1 + np.log(tf)) if tf > 1 else tf


class Twin:
    """A plain implementation of a linear model."""

    def __init__(self, parts: Parts) -> None:
        self.config = parts.config
        self.arrays: dict[str, Float64] = {
            name: np.asarray(a, np.float64) for name, a in parts.arrays.items()
        }
        self.strings = {name: list(strings) for name, strings in parts.strings.items()}
        self.place = {
            name: {text: i for i, text in enumerate(texts)} for name, texts in self.strings.items()
        }
        # Queries repeat words, and the forms of each are searched among all known words.
        self.forms = cache(self._forms)

    # -- the dense part ---------------------------------------------------------------------

    def vector(self, side: str, word: str) -> Float64 | None:
        """A word's row of U or V: stored, or made of its trigrams; None where it has none."""
        row = self.place[f"{side}.words"].get(word)
        if row is not None:
            known: Float64 = self.arrays[f"{side}.table"][row]
            return known
        if not self.strings[f"{side}.trigrams"]:
            return None
        letters, place = trigrams_of(word), self.place[f"{side}.trigrams"]
        table = self.arrays[f"{side}.trigrams"]
        found = [table[place[g]] for g in letters if g in place]
        return np.sum(found, axis=0) / np.sqrt(len(letters)) if found else np.zeros(self.n_dense)

    @property
    def n_dense(self) -> int:
        """N."""
        return int(self.arrays["query.table"].shape[1])

    def phi(self, side: str, fields: Sequence[str], field_weights: Sequence[float]) -> Weights:
        """The unit vector of a text: Σ_f weight · unit((1 + ln tf) idf), its top words, unit again.

        Or its counts, so weighed that every letter trigram counts as often as it occurs.
        """
        place, idf = self.place[f"{side}.words"], self.arrays[f"{side}.idf"]
        counted = self.config["dense"].get("counted", False)
        total: Weights = {}
        for text, weight in zip(fields, field_weights, strict=True):
            if not weight:
                continue
            occurring: Mapping[str, float] = self._phi_counts(text)
            if side == "query":
                occurring = self.corrected(occurring, len(occurring), KEPT)
            counts = {w: n for w, n in occurring.items() if self._has_row(side, w)}
            if counted:
                letters = bool(self.strings[f"{side}.trigrams"])
                x = {
                    w: n * np.sqrt(len(trigrams_of(w)) if letters else 1) for w, n in counts.items()
                }
            else:
                x = unit({w: damped(n) * idf[place.get(w, -1)] for w, n in counts.items()})
            for word, value in x.items():
                total[word] = total.get(word, 0.0) + weight * value
        keep = self.config["dense"][f"{side}_terms"]
        if keep:
            # Ties, as float32 sees them, go to the vocabulary's order; unseen words come last.
            strength = {
                w: (-float(np.float32(abs(x))), w not in place, w) for w, x in total.items()
            }
            total = {w: total[w] for w in sorted(total, key=strength.__getitem__)[:keep]}
        return total if counted else unit(total)

    def _phi_counts(self, text: str) -> Counter[str]:
        """Words, and the known 2-grams; none crosses a line end."""
        counts = Counter(words(text))
        if self.config.get("ngrams", 1) == 2:
            for line in text.split("\n"):
                found = words(line)
                pairs = [f"{a} {b}" for a, b in pairwise(found)]
                counts.update(pair for pair in pairs if pair in self.place["query.words"])
        return counts

    def _has_row(self, side: str, word: str) -> bool:
        return word in self.place[f"{side}.words"] or bool(self.strings[f"{side}.trigrams"])

    def dense(self, queries: Sequence[str], documents: Sequence[Sequence[str]]) -> Float64:
        """a · qᵀ(UᵀV)d of every pair, divided by the norms of Uq and Vd where the model asks for it."""
        asked = [self.phi("query", [text], [1.0]) for text in queries]
        weights = self.config["field_weights"]
        vectors = [self.phi("document", fields, weights) for fields in documents]
        q, U = self._stacked("query", asked)
        d, V = self._stacked("document", vectors)
        u, v = self.above("query", q @ U), self.above("document", d @ V)
        u[[not text for text in asked]] = 0
        v[[not text for text in vectors]] = 0
        scores = u @ v.T if "query.b0" in self.arrays else q @ (U @ V.T) @ d.T
        if self.config["unit"]:
            norms = np.outer(np.linalg.norm(u, axis=1), np.linalg.norm(v, axis=1))
            scores = scores / np.where(norms == 0, 1, norms)
        return np.asarray(scores * self.config["dense_scale"])

    def above(self, side: str, a: Float64) -> Float64:
        """tanh layers over rows of weighted sums; the last one linear and added to a with ``skip``."""
        y, depth, skip = a, 0, self.config["dense"].get("skip", False)
        while f"{side}.b{depth}" in self.arrays:
            last = f"{side}.b{depth + 1}" not in self.arrays
            p = (y @ self.arrays[f"{side}.W{depth}"] if depth else a) + self.arrays[
                f"{side}.b{depth}"
            ]
            y = p if skip and last else np.tanh(p)
            depth += 1
        return a + y if skip else y.copy()

    def _stacked(self, side: str, texts: Sequence[Weights]) -> tuple[Float64, Float64]:
        """(texts, words) features and (words, N) vectors over every word that occurs."""
        occurring = sorted(set().union(*texts))
        x = np.array([[text.get(word, 0.0) for word in occurring] for text in texts])
        table = [self.vector(side, word) for word in occurring]
        return x.reshape(len(texts), -1), np.array(table).reshape(len(table), self.n_dense)

    # -- the lexical part -----------------------------------------------------------------

    def feature(self, word: str) -> int | None:
        """The row of a word in the lexical part."""
        found = self.place["sparse.words"].get(word)
        if found is None and self.config["sparse"]["buckets"]:
            bucket: int = crc32(word.encode()) % self.config["sparse"]["buckets"]
            return len(self.strings["sparse.words"]) + bucket
        return found

    def counts(self, occurring: Mapping[str, float]) -> dict[int, float]:
        """tf by feature."""
        found: dict[int, float] = {}
        for word, tf in occurring.items():
            feature = self.feature(word)
            if feature is not None:
                found[feature] = found.get(feature, 0.0) + tf
        return found

    def corrected(
        self, occurring: Mapping[str, float], size: int, kept: float
    ) -> Mapping[str, float]:
        """tf of a query of `size` words, with known words in the place of unknown ones."""
        discount = self.config.get("spelling", 0.0)
        if not discount or size > MAX_CORRECTED:
            return occurring
        frequencies: dict[str, float] = {}
        for name in ("sparse", "query"):
            known = self.strings[f"{name}.words"]
            idf = self.arrays[f"{name}.idf"][: len(known)]
            frequencies |= dict(zip(known, np.exp(idf.max(initial=0) - idf).tolist(), strict=True))
        # A word that has another form among known words is no typing error.
        forms = {word: n for word, n in occurring.items() if self.forms(word)}
        rest = {word: n for word, n in occurring.items() if word not in forms}
        found = Counter(corrected(rest, frequencies, discount, kept))
        found.update(forms)
        return found

    def _tfidf(self, counts: Mapping[int, float]) -> dict[int, float]:
        idf = self.arrays["sparse.idf"]
        raw = {w: damped(n) * idf[w] for w, n in counts.items()}
        norm = np.sqrt(sum(v * v for v in raw.values())) or 1.0
        return {w: v / norm for w, v in raw.items()}

    def query_weights(self, text: str) -> dict[int, float]:
        """s over words."""
        sparse, size = self.config["sparse"], len(self._phi_counts(text))
        typed = self.corrected(Counter(words(text)), size, 1.0)
        counts, asked = self.counts(typed), typed if len(typed) <= 64 else {}
        if sparse["scheme"] == "tfidf":
            for word, n in asked.items():
                _add(counts, self.forms(word), n)
            _add(counts, self.joined(text), 1.0)
            weights = self._tfidf(counts)
        else:
            weights = {w: self._saturated(n) for w, n in counts.items()}
        if sparse["terms"]:
            idf = self.arrays["sparse.idf"]
            strength = {w: (-float(np.float32(x * idf[w])), w) for w, x in weights.items()}
            kept = sorted(weights, key=strength.__getitem__)[: sparse["terms"]]
            weights = {w: weights[w] for w in kept}
        if sparse["scheme"] != "tfidf":
            kept_features = set(weights)
            for word, n in asked.items():
                if self.feature(word) is None or self.feature(word) in kept_features:
                    _add(weights, self.forms(word), self._saturated(n))
            _add(weights, self.joined(text), 1.0)
        return weights

    @cached_property
    def known_forms(self) -> list[tuple[tuple[int, ...], tuple[str, ...], str]]:
        """Rows, spellings and singular of each known word, then of each compound."""
        known = list[tuple[tuple[int, ...], tuple[str, ...], str]]()
        place = self.place["sparse.words"]
        for word, row in place.items():
            keys = spellings(word)
            known.append(((row,), keys, singular(keys[0])))
        for compound in self.strings.get("compounds", []):
            written, _, whole = compound.rpartition("=")
            parts = whole.split(" ")
            key = fold(written or "".join(parts))
            known.append((tuple(place[part] for part in parts), (key,), singular(key)))
        return known

    def _forms(self, word: str, parts: tuple[str, ...] = ()) -> dict[int, float]:
        """The other forms of a word, or of parts that are joined to it, and their shares, by a look at every word."""
        sparse = self.config["sparse"]
        folded, plurals = sparse.get("folded", 0.0), sparse.get("plurals", 0.0)
        strength = self.arrays["sparse.idf"] ** (2 if sparse["scheme"] == "tfidf" else 1)
        place, number = self.place["sparse.words"], singular(fold(word))
        discount: dict[tuple[int, ...], float] = {}
        own_keys = set(spellings(word))
        for rows, keys, other in self.known_forms:
            if parts and len(rows) > 1:
                continue
            if folded and own_keys.intersection(keys):
                discount[rows] = folded
            elif plurals and (number in keys or other == number):
                discount[rows] = plurals
        split = tuple(place.get(part, -1) for part in split_digits(word))
        if folded and not parts and split and min(split) >= 0:
            discount.setdefault(split, folded)
        own = place.get(word, -1) if not parts else -1
        discount.pop((own,), None)
        total = {rows: sum(strength[row] for row in rows) for rows in discount}
        sources = [place.get(part, -1) for part in parts or [word]]
        limit = min(total.values(), default=0.0)
        if min(sources) >= 0:
            limit = sum(strength[row] for row in sources)
        found: dict[int, float] = {}
        for rows in sorted(total, key=lambda rows: (-discount[rows], total[rows], rows))[:8]:
            for row in set(rows) - {own}:
                share = discount[rows] * min(1.0, limit / total[rows])
                found[row] = max(found.get(row, 0.0), share)
        return found

    def joined(self, text: str) -> dict[int, float]:
        """Words of the documents that a query has in two to four parts."""
        sequence, found = words(text), dict[int, float]()
        for size in (2, 3, 4) if len(sequence) <= 64 else ():
            for k in range(len(sequence) - size + 1):
                parts = tuple(sequence[k : k + size])
                _add(found, self.forms("".join(parts), parts), 1.0)
        return found

    def _saturated(self, tf: float) -> float:
        k3 = self.config["sparse"]["k3"]
        return tf if k3 is None else tf * (k3 + 1) / (tf + k3)

    def field_weights(self, text: str, field: int) -> dict[int, float]:
        """z_f, before the diagonal."""
        sparse, counts = self.config["sparse"], self.counts(Counter(words(text)))
        if sparse["scheme"] == "tfidf":
            return self._tfidf(counts)
        idf, k1, b = self.arrays["sparse.idf"], sparse["k1"], sparse["b"]
        length = sum(counts.values()) / max(sparse["mean_lengths"][field], 1e-9)
        return {
            w: idf[w] * n * (k1 + 1) / (n + k1 * (1 - b + b * length)) for w, n in counts.items()
        }

    def lexical(
        self, queries: Sequence[str], documents: Sequence[Sequence[str]], titles: Sequence[str]
    ) -> Float64:
        """Σ_f qᵀ D_f d_f of every pair, and the phrase that a title is."""
        scores = np.zeros((len(queries), len(documents)))
        if self.config["sparse"]["scheme"] == "none":
            return scores
        width = len(self.strings["sparse.words"]) + self.config["sparse"]["buckets"]
        s = _dense([self.query_weights(text) for text in queries], width)
        for f in range(len(self.config["fields"])):
            z = _dense([self.field_weights(fields[f], f) for fields in documents], width)
            scores += s @ np.diag(self.arrays["sparse.D"][f]) @ z.T
        if not self.config["phrase_field"]:
            return scores
        for j, wanted in enumerate(map(words, titles)):
            row = self.place["phrases"].get(" ".join(wanted))
            for i, sequence in enumerate(map(words, queries)):
                size = len(wanted)
                times = sum(sequence[k : k + size] == wanted for k in range(len(sequence)))
                if row is not None and times:
                    scores[i, j] += self._saturated(times) * self.arrays["phrases.P"][row]
        return scores

    def scores(
        self, queries: Sequence[str], documents: Sequence[Mapping[str, Any]]
    ) -> tuple[Float64, Float64]:
        """Return (dense, lexical), each (queries, documents)."""
        fields = [
            [
                "\n".join(d[name] for name in names if name in d)
                for _, names in self.config["fields"]
            ]
            for d in documents
        ]
        titles = [d.get(self.config["phrase_field"], "") for d in documents]
        return self.dense(queries, fields), self.lexical(queries, fields, titles)


class TransductiveTwin(Twin):
    """f(q, d_i) = v_i · Uq: of the corpus in its order, whatever the words of the documents say."""

    def __init__(self, parts: Parts, stored: Encoded) -> None:
        super().__init__(parts)
        self.items = np.asarray(stored.dense, np.float64)

    def dense(self, queries: Sequence[str], documents: Sequence[Sequence[str]]) -> Float64:
        """v_i · Uq of every pair, Uq of unit length where the model asks for it."""
        q, U = self._stacked("query", [self.phi("query", [text], [1.0]) for text in queries])
        assert len(documents) == len(self.items)
        u = q @ U
        if self.config["unit"]:
            norm = np.linalg.norm(u, axis=1, keepdims=True)
            u = u / np.where(norm == 0, 1, norm)
        return np.asarray(u @ self.items.T)


def _add(weights: dict[int, float], shares: Mapping[int, float], weight: float) -> None:
    for feature, share in shares.items():
        weights[feature] = weights.get(feature, 0.0) + weight * share


def _dense(rows: Sequence[Mapping[int, float]], width: int) -> Float64:
    out = np.zeros((len(rows), width))
    for i, row in enumerate(rows):
        for column, value in row.items():
            out[i, column] = value
    return out
