"""An opened bundle: search, explain, encode and evaluate in Python."""

from __future__ import annotations

import gzip
import json
import math
import sys
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.bundle.manifest import Manifest
from fullrank.errors import ArgumentError, require
from fullrank.filters.columns import Columns, columns_of, open_columns
from fullrank.filters.facets import facet_over
from fullrank.filters.identifiers import MOST, named, spellings_of
from fullrank.filters.query import matching, parse_filter
from fullrank.measures import (
    RANKING_MEASURES,
    Estimate,
    estimates,
    ranking_measures,
)
from fullrank.models.clicks import ClickParts
from fullrank.models.contract import Model
from fullrank.models.memory import MemoryModel
from fullrank.models.unseen import OpenModel, live_model
from fullrank.models.words import Words
from fullrank.progress import Reporter
from fullrank.retrieval import MATCHES, Floor, Match, Ranking, Retriever
from fullrank.retrieval.retriever import Explanation, explain
from fullrank.search.complete import Prefixes
from fullrank.search.highlight import Highlight, check_highlight
from fullrank.search.part import Part
from fullrank.search.query import Analyzer, Options
from fullrank.search.rerank.facts import DocumentFacts
from fullrank.search.rerank.stage import DEPTH, Reordered, SecondStage, first_of
from fullrank.search.rules.places import Page
from fullrank.search.searchable import Hit, Hits, Searchable, explained, highlighted
from fullrank.storage.encoding import Encoded
from fullrank.storage.files import replacing
from fullrank.storage.records import Documents, used_columns
from fullrank.storage.strings import DocumentStore

# Documents whose sparse entries are counted.
_SAMPLED = 64
# Documents per query that measures see, by TREC's convention.
_DEPTH = 1000
# Documents written between two reports of progress.
_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Section:
    """A folder of a bundle besides the documents: its facts, arrays and string tables by name."""

    facts: Mapping[str, Any]
    arrays: Mapping[str, npt.NDArray[Any]]
    strings: Mapping[str, Sequence[str]]

    def columns(self, documents: int, *, verify: bool) -> Columns:
        return open_columns(documents, self.facts, self.arrays, self.strings, verify=verify)


@dataclass(frozen=True, eq=False)
class Bundle:
    """An opened bundle: the model, the encoded documents (mapped), their stored fields, and retrieval.

    Attributes:
        sections: "index", "columns" and "rerank", where the bundle has them.
        facts: About the documents, for the second stage.
    """

    path: Path
    manifest: Manifest
    model: Model
    encoded: Documents
    documents: DocumentStore
    retriever: Retriever
    sections: Mapping[str, Section]
    second_stage: SecondStage | None = None
    facts: DocumentFacts | None = None

    def __repr__(self) -> str:
        recipe: Any = self.card.get("trained", self.card)
        for key in ("recipe", "name"):  # a card may have any form
            recipe = recipe.get(key) if isinstance(recipe, Mapping) else None
        made = f", recipe {recipe}" if recipe else ""
        return f"<Bundle {self.version}: {self.n_documents:,} documents{made}>"

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def version(self) -> str:
        return self.manifest.version

    @property
    def bundle_id(self) -> str:
        return self.manifest.bundle_id

    @property
    def n_documents(self) -> int:
        return len(self.documents)

    @property
    def card(self) -> Mapping[str, Any]:
        return self.manifest.card

    @property
    def part(self) -> Part:
        """The documents, as searches and views take them."""
        # Not kept: a circle of references would stay mapped until a garbage collection.
        return Part(
            self.bundle_id, self.documents, self.retriever, self,
            facts=self.facts, new_words=self.new_words,
        )  # fmt: skip

    @property
    def floor(self) -> Floor | None:
        """What a document must reach to be found by a familiar query; None: every document is found."""
        floor = self.manifest.floor
        # A compacted bundle has live documents among the others.
        return floor.of_live() if floor and isinstance(self.model, OpenModel) else floor

    @cached_property
    def click_parts(self) -> ClickParts | None:
        return ClickParts.of(self.model)

    @cached_property
    def match(self) -> Match:
        """How searches match unless they say: "auto" for a model that had nothing to learn from, else "any".

        What a model learned finds documents without the words of a query, and training measures it so.
        """
        return "auto" if _learned_nothing(self.model) else "any"

    @cached_property
    def analyzer(self) -> Analyzer:
        # It has parts of the bundle, because a circle of references would stay mapped until a garbage collection.
        return Analyzer(
            self.model, self.live_model, self.known_words, self.prefixes, self.floor, self.click_parts,
            self.match, self.second_stage, self.n_documents, self.new_words,
            self.find_unseen(),
        )  # fmt: skip

    def find_unseen(self) -> Callable[[], frozenset[int]]:
        """Return a function that finds the features of unseen words in documents; it does not keep the bundle alive."""
        return lru_cache(1)(partial(_unseen_features, self.model, self.encoded))

    @property
    def unseen_features(self) -> frozenset[int]:
        """The features of unseen words that some document has."""
        return self.analyzer.unseen()

    @cached_property
    def live_model(self) -> OpenModel | None:
        """The model with features for unknown words; None for a model that cannot take live documents."""
        return live_model(self.model)

    @cached_property
    def known_words(self) -> Words:
        return Words.of(self.model)

    @property
    def new_words(self) -> Sequence[str]:
        """Words that training did not see, ascending, of live documents that were compacted into this bundle."""
        section = self.sections.get("words")
        return () if section is None else section.strings["new"]

    @cached_property
    def prefixes(self) -> Prefixes:
        return Prefixes(self.model, self.known_words)

    @cached_property
    def columns(self) -> Columns:
        """The stored fields as columns: mapped, or built on first use from a bundle without them."""
        stored = self.sections.get("columns")
        if stored is None:
            return columns_of(map(self.documents.fields, range(len(self.documents))))
        return stored.columns(len(self.documents), verify=False)

    def entries_of(self, words: int) -> int:
        """Estimate the sparse entries of a document with so many known words, by a sample of the documents."""
        each, most = self._entries
        # Models add words to a document up to a number of their own.
        return min(round(words * each), most + words)

    @cached_property
    def _entries(self) -> tuple[float, int]:
        """Sparse entries for each known word in a sample of the documents, and the most entries of one document."""
        count = min(_SAMPLED, len(self.documents), len(self.encoded))
        if self.live_model is None or not count:
            return 1.0, 0
        rows = np.linspace(0, len(self.documents) - 1, count).astype(np.int64)
        entries = self.encoded.indptr[rows + 1] - self.encoded.indptr[rows]
        found = [self.live_model.words_in(self.documents.fields(i)) for i in rows.tolist()]
        known = sum(len(words) - len(unknown) for words, unknown in found)
        return max(1.0, float(entries.sum()) / max(1, known)), int(entries.max())

    def distinct_values(self, name: str) -> int:
        """Return how many different values a stored field has; 0 for one that filters cannot read."""
        column = self.columns.by_name.get(name)
        return 0 if column is None else sum(len(part.values) for part in column.parts.values())

    def search(
        self,
        text: str,
        limit: int = 10,
        *,
        offset: int = 0,
        filter: Mapping[str, Any] | None = None,
        exclude: Collection[str] = (),
        mode: str = "exact",
        min_score: float | None = None,
        explain: bool = False,
        match: Match | None = None,
        facets: Sequence[str] = (),
        highlight: Sequence[str] = (),
    ) -> Hits:
        """Search the documents; those that the query names by id or SKU come first (fullrank.filters.identifiers).

        Args:
            text: The query.
            limit: How many hits, at least 1.
            offset: How many of the best documents to skip.
            filter: Which documents may be returned, as in docs/guides/search/filters.md.
            exclude: Ids of documents that must not be returned; unknown ids are ignored.
            mode: "exact", or "fast" where the bundle has that mode (otherwise the search is exact). The total
                of the fast mode is of the documents that it found; there may be more.
            min_score: The score that a hit must reach, in place of the evidence that the bundle asks for.
            explain: Attach to each hit the words that contributed most.
            match: Which words of the query a hit must have: "all" that some document has, "any", or "auto", which
                requires fewer where no document has all. None: as `Bundle.match` says.
            facets: Fields whose ten most frequent values are counted over all documents that are found.
            highlight: Fields of which each hit gets a snippet.

        Raises:
            ArgumentError: An argument is of the wrong type, or the mode or `match` is unknown.
            FilterError: The filter is malformed, or it, `facets` or `highlight` does not fit the stored fields.

        Examples:
            >>> bundle = open_bundle(path)
            >>> for hit in bundle.search("red apple", limit=2):
            ...     print(hit.id, round(hit.score, 2), hit.fields["title"])
            apple 2.3 Apple
            ringo 2.1 りんご
            >>> [hit.id for hit in bundle.search("red apple", filter={"tags": "sweet"})]
            ['apple-pie']
        """
        _check_query(text, limit)
        require(_is_count(offset), "offset", offset, "a number from 0 on")
        require(not isinstance(exclude, str), "exclude", exclude, "a collection of ids")
        require(mode in ("exact", "fast"), "mode", mode, "'exact' or 'fast'")
        require(match in (None, *MATCHES), "match", match, "'all', 'any', 'auto' or None")
        is_number = min_score is None or isinstance(min_score, Real)
        require(is_number, "min_score", min_score, "a number")
        for name, fields in (("facets", facets), ("highlight", highlight)):
            require(not isinstance(fields, str), name, fields, "a list of fields")
        if highlight:
            check_highlight(self.columns, highlight, "highlight")
        documents, analyzer = Searchable(self.part, (), self.second_stage), self.analyzer
        matched = None if filter is None else [matching(parse_filter(filter), self.columns)]
        allowed, first = documents.deleted(matched, exclude), list[Hit]()
        if spellings := spellings_of(text):
            others = ~named(spellings, documents.base.row, self.columns)
            others = others if allowed[0] is None else others | allowed[0]
            if not others.all():
                query = analyzer.query(text, Options(match="any", min_score=-math.inf))
                first = documents.search(query, MOST, deleted=[others], mode=mode).hits
        query = analyzer.query(text, Options(match, min_score, is_strict=bool(first)))
        deleted = documents.marked(allowed, [hit.id for hit in first], True)
        if query.required is not None:
            deleted, _ = documents.lacking(query, query.required, deleted, allowed)
        page = Page(offset, limit, range(len(first)))
        count, start = (max(1, page.ranked_limit), page.ranked_offset) if first else (limit, offset)
        found = documents.search(query, count, offset=start, deleted=deleted, mode=mode)
        floor = query.floor
        # No document has the evidence that a query asks for, although one of its words is known.
        if (
            not found.hits
            and floor is not None
            and floor.can_be_any_word
            and analyzer.has_known_word(text)
            and not documents.base.count(query, floor, 0, None)
        ):
            floor = floor.of_any_word()
            query = replace(query, floor=floor)
            found = documents.search(query, count, offset=start, deleted=deleted, mode=mode)
        if first:
            length = found.total if found.is_total else sys.maxsize
            hits, _ = page.put(found.hits[: page.ranked_limit], length, first)
            found = replace(found, hits=hits, total=found.total + len(first))
        if explain:
            terms = self.model.query_terms(text)
            stage, learned = self.second_stage, self.click_parts
            hits = [explained(hit, query, terms, stage, learned) for hit in found.hits]
            found = replace(found, hits=hits)
        if highlight:
            marks = Highlight(highlight)
            marked = highlighted(self.model, documents.parts, text, query, found.hits, marks)
            found = replace(found, hits=marked)
        if facets:
            below = deleted if floor is None else documents.below(query, floor, deleted)
            [left_out] = documents.marked(below, [hit.id for hit in first], False)
            every = np.ones(self.n_documents, np.bool_) if left_out is None else ~left_out
            counted = {name: facet_over([(self.columns, every)], name, 10) for name in facets}
            found = replace(found, facets=counted)
        return found

    def reorder(
        self, text: str, ranking: Ranking, *, is_document: bool = False
    ) -> Reordered | None:
        """Order the first documents of a whole ranking by the second stage; None if none is for such queries."""
        stage = self.second_stage
        if stage is None or stage.of_documents != is_document:
            return None
        assert self.facts is not None
        return stage.order(text, first_of(ranking), self.facts.take(ranking.rows[:DEPTH]))

    def explain(self, text: str, id: str, limit: int = 8) -> Explanation:
        """Split the score of one document for a query by part and by word, those with the largest contributions.

        Raises:
            ArgumentError: An argument is of the wrong type.
            KeyError: There is no such document.

        Examples:
            >>> bundle = open_bundle(path)
            >>> why = bundle.explain("red apple", "apple")
            >>> print(f"{why.dense:.2f} {why.lexical:.2f} {why.bias:.2f}")
            -0.70 2.75 0.25
            >>> for word in why.words:
            ...     print(f"{word.word} {word.dense:.2f} {word.lexical:.2f}")
            apple 0.45 1.59
            red -1.15 1.16
        """
        _check_query(text, limit)
        require(isinstance(id, str), "id", id, "text")
        terms = self.model.query_terms(text)
        return explain(terms, self.retriever, self.encode(text), self.documents.row(id), limit)

    def encode(self, texts: str | Sequence[str]) -> Encoded:
        """Encode one query or several: u (dense) and s (sparse) of each.

        Examples:
            >>> bundle = open_bundle(path)
            >>> bundle.encode(["red apple", "bread"]).dense.shape
            (2, 4)
        """
        listed = [texts] if isinstance(texts, str) else texts
        require(_are_texts(listed), "texts", texts, "a text or a list of texts")
        return self.model.encode_queries(listed)

    def evaluate(
        self,
        queries: Mapping[str, str] | str | Path,
        qrels: Mapping[str, Mapping[str, int]] | str = "test",
    ) -> dict[str, Estimate]:
        """Measure the ranking of judged queries: mean and standard error of each ranking measure.

        The measures are those of trec_eval (fullrank.measures) over the first 1,000 documents.

        Args:
            queries: Query id → text; or a folder with queries.jsonl and qrels/SPLIT.tsv, plain or .gz.
            qrels: The split of the folder, or query id → document id → grade; a grade above zero means relevant.
                Queries without a relevant document are left out.

        Raises:
            ArgumentError: An argument is of the wrong type, a file is malformed, a judged query has no text, a judged
                document is not in the bundle, or no query has a relevant document.

        Examples:
            >>> bundle = open_bundle(path)
            >>> queries = {"q1": "red apple", "q2": "bread"}
            >>> measures = bundle.evaluate(queries, {"q1": {"apple": 1}, "q2": {"bread": 2}})
            >>> measures["mrr"].mean
            0.75
        """
        if isinstance(queries, str | Path):
            require(isinstance(qrels, str), "qrels", qrels, "the name of a split")
            queries, qrels = _read_split(Path(queries), str(qrels))
        if isinstance(qrels, str):
            raise ArgumentError("qrels: name a split of a folder, or give a mapping")
        require(_maps_to(queries, str), "queries", queries, "a mapping from query ids to texts")
        is_graded = _maps_to(qrels, Mapping) and all(_maps_to(j, Real) for j in qrels.values())
        require(is_graded, "qrels", qrels, "a mapping from query ids to document ids to grades")
        relevant = {
            query: {self._graded_row(query, id): grade for id, grade in judged.items() if grade > 0}
            for query, judged in qrels.items()
        }
        judged = [query for query, rows in relevant.items() if rows]
        if not judged:
            raise ArgumentError("qrels: no query has a relevant document")
        for query in judged:
            require(query in queries, "qrels", query, "a query of queries")
        # Without hits: a thousand for each query would take longer than the search.
        rankings = self.retriever.search(self.encode([queries[query] for query in judged]), _DEPTH)
        values: dict[str, list[float]] = {name: [] for name in RANKING_MEASURES}
        for query, ranking in zip(judged, rankings, strict=True):
            grades = relevant[query]
            reordered = self.reorder(queries[query], ranking)
            if reordered is not None:
                ranking = ranking.take(reordered.places(len(ranking.rows)))
            found = np.array([grades.get(row, 0) for row in ranking.rows.tolist()], np.int64)
            measured = ranking_measures(found, np.array(list(grades.values()), np.int64))
            for name, value in measured.items():
                values[name].append(value)
        return estimates({name: np.array(column) for name, column in values.items()})

    def _graded_row(self, query: str, id: str) -> int:
        try:
            return self.documents.row(id)
        except (KeyError, TypeError):
            raise ArgumentError(
                f"qrels: document {id!r} of query {query!r} is not in the bundle"
            ) from None


def _unseen_features(model: Model, encoded: Documents) -> frozenset[int]:
    if not isinstance(model, OpenModel):
        return frozenset()
    found = np.flatnonzero(used_columns(encoded))
    return frozenset(found[found >= model.model.n_sparse].tolist())


def _learned_nothing(model: Model) -> bool:
    return all(
        not len(leaf.queries)
        if isinstance(leaf, MemoryModel)
        else leaf.config.get("match") == "auto"
        for _, leaf in model.leaves()
    )


def _check_query(text: object, limit: object) -> None:
    require(isinstance(text, str), "text", text, "text")
    require(_is_count(limit, 1), "limit", limit, "a number from 1 on")


def _is_count(value: object, least: int = 0) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return int(value) >= least


def _are_texts(values: object) -> bool:
    return isinstance(values, Sequence) and all(isinstance(value, str) for value in values)


def _maps_to(value: object, kind: type) -> bool:
    return isinstance(value, Mapping) and all(isinstance(v, kind) for v in value.values())


def write_corpus(bundle: Bundle, file: Path, report: Reporter) -> int:
    """Write a corpus.jsonl, which appears when it is complete; return the number of documents. Raises OSError."""
    store = bundle.documents
    with replacing(file) as lines, report.stage("export", len(store)) as stage:
        for start in range(0, len(store), _ROWS):
            rows = range(start, min(start + _ROWS, len(store)))
            lines.writelines(map(store.corpus_line, rows))
            stage.advance(len(rows))
    return len(store)


def _read_split(folder: Path, split: str) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Read the queries and the judgements of one split: queries.jsonl and qrels/SPLIT.tsv, plain or .gz.

    Returns:
        Query id → text, and query id → document id → grade.

    Raises:
        ArgumentError: A file is missing, or a line of it is malformed.
    """
    queries, qrels = dict[str, str](), dict[str, dict[str, int]]()
    for at, line in _lines(folder / "queries.jsonl"):
        try:
            query = json.loads(line)
            queries[query["_id"]] = query["text"]
        except (ValueError, TypeError, KeyError):
            raise ArgumentError(f"{at}: is no JSON object with _id and text") from None
    for at, line in _lines(folder / "qrels" / f"{split}.tsv"):
        cells = line.rstrip("\r").split("\t")
        if cells[-1] == "score":  # the header
            continue
        try:
            query_id, document, grade = cells
            qrels.setdefault(query_id, {})[document] = int(grade)
        except ValueError:
            reason = "has not a query id, a document id and an integer, with tabs between them"
            raise ArgumentError(f"{at}: {reason}") from None
    return queries, qrels


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    packed = path.with_name(f"{path.name}.gz")
    try:
        content = gzip.decompress(packed.read_bytes()) if packed.is_file() else path.read_bytes()
        for number, line in enumerate(content.decode("utf-8-sig").split("\n"), 1):
            if line.strip():
                yield f"{path}:{number}", line
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
