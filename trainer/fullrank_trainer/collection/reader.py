"""Read a collection: a folder of JSON lines and judgements.

    corpus.jsonl[.gz]     {"_id", "title", "text", further stored fields}, one object a line;
                          in the folder itself or, if several query sets share it, in its parent
    queries.jsonl[.gz]    {"_id", "text"} and optionally "title", which is put before the text;
                          absent if the documents are the queries
    qrels/<split>.tsv     judgements, see ``judgements``
    weights/<split>.tsv   optional: weights of judgements, see ``judgements``
    anchors.tsv           optional, next to the corpus: texts of links, see ``corpus``
    schema.json           optional: which fields are read, see ``schema``; in the folder or next to the corpus

Documents in another language: a folder under a collection of linked documents may hold queries
only. Each has the id of the document that it describes, its mate. The parent's judgements of a
mate then apply to its description, and a mate is no answer to its own description.

Malformed input raises a CollectionError that names file, line and field. Input that is valid but
odd (empty texts, repeated judgements, judgements of unknown ids) is counted in the ReadReport.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from fullrank.errors import CollectionError
from fullrank.storage.documents import Document, field_text
from fullrank.storage.encoding import Int64
from fullrank_trainer.collection.corpus import (
    find_corpus,
    iter_documents,
    no_collection,
    read_anchors,
)
from fullrank_trainer.collection.judgements import (
    PEOPLE,
    WEIGHTS,
    Qrels,
    find_inherited_qrels,
    find_splits,
    read_qrels,
    read_values,
)
from fullrank_trainer.collection.pairs import ById, Ids, Pairs
from fullrank_trainer.collection.schema import (
    SCHEMA,
    FieldVerdict,
    Schema,
    choose_fields,
    parse_schema,
)
from fullrank_trainer.collection.store import Query, StoredDocuments, StoredQueries
from fullrank_trainer.lines import Lines, ReadReport, find_file


@dataclass(frozen=True)
class Collection:
    """A collection: judgements and queries in memory, documents in a file.

    Attributes:
        documents: in ascending id order, so that "ties by id" is "ties by row"; each is read when it is asked for.
        queries: in the order of the file; None if the documents are the queries.
        has_mates: a query is, or describes, the document of the same id, its mate, which is never
            its answer: true if the documents are the queries or the qrels are the parent's.
        fingerprint: sha256 over the content of every file and the fields asked for; compression does not
            change it.
        judgements: by split, with weights and people where it has such files.
        anchors: text of links that no document has in its anchors → ids of the documents that it leads to.
    """

    path: Path
    documents: Sequence[Document]
    queries: Sequence[Query] | None
    has_mates: bool
    splits: tuple[str, ...]
    report: ReadReport
    fingerprint: str
    judgements: Mapping[str, Pairs] = field(repr=False)
    fields: tuple[FieldVerdict, ...] = ()
    anchors: Mapping[str, list[str]] = field(default_factory=dict, repr=False)

    @cached_property
    def document_ids(self) -> Ids:
        if isinstance(self.documents, StoredDocuments):
            return self.documents.ids
        return Ids(document.id for document in self.documents)

    @cached_property
    def query_ids(self) -> Ids:
        """The id of every query; of every document if the documents are the queries."""
        if self.queries is None:
            return self.document_ids
        if isinstance(self.queries, StoredQueries):
            return self.queries.ids
        return Ids(query.id for query in self.queries)

    @property
    def query_texts(self) -> Sequence[str]:
        """The text of every query; none if the documents are the queries."""
        if isinstance(self.queries, StoredQueries):
            return self.queries.texts
        return [query.text for query in self.queries or ()]

    def field_texts(self, name: str) -> Sequence[str]:
        if isinstance(self.documents, StoredDocuments):
            return self.documents.texts(name)
        return [field_text(document.fields, [name]) for document in self.documents]

    @property
    def corpus_order(self) -> Int64:
        """The row of every document, in the order of the corpus file, int64 (documents,)."""
        if isinstance(self.documents, StoredDocuments):
            return self.documents.stored_order
        return np.arange(len(self.documents))

    @property
    def documents_are_queries(self) -> bool:
        """True if there is no queries file: each document is a query for the others."""
        return self.queries is None

    def qrels(self, split: str) -> Qrels:
        """Return query id → document id → grade. Raises CollectionError if there is no such split."""
        if split not in self.judgements:
            known = ", ".join(self.splits) or "none"
            raise CollectionError(f"{self.path / 'qrels'}: no split {split!r}; there are: {known}")
        return ById(self.query_ids, self.document_ids, self.judgements[split], "grades")

    @cached_property
    def weights(self) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
        """By split, the weights of judged pairs; a split without weights/<split>.tsv is left out."""
        found = {}
        for split, pairs in self.judgements.items():
            if pairs.weights is not None:
                given = pairs.where(pairs.weights > 0)
                found[split] = ById(self.query_ids, self.document_ids, given, WEIGHTS)
        return found


def read_collection(
    path: str | Path, *, strict: bool = False, fields: Sequence[str] | None = None
) -> Collection:
    """Read a collection folder.

    Args:
        strict: refuse judgements of unknown queries or documents. By default they are skipped and
            counted, because a click on a document that was deleted since is no reason to stop.
        fields: the fields to read, in this order; by default schema.json and the rule of ``schema``
            decide.

    Raises:
        CollectionError: a file is missing or malformed; the message names file, line and field.

    Example:
        >>> collection = read_collection("shop")
        >>> collection.splits
        ('train', 'valid', 'test')
    """
    folder = Path(path)
    if not folder.is_dir():
        is_file = folder.exists()
        raise no_collection(f"{folder}: {'a file, not a' if is_file else 'no such'} folder")
    corpus_file = find_corpus(folder)
    queries_file = find_file(folder, "queries.jsonl")
    report = ReadReport()
    digests: list[tuple[str, str]] = []

    corpus = Lines(corpus_file)
    anchors = read_anchors(corpus_file.parent, digests)
    read = (document for _, document in iter_documents(corpus, report))
    documents = StoredDocuments(anchors.add_to(read))
    digests.append(("corpus", corpus.digest()))
    schema = _read_schema(folder, corpus_file.parent, digests)
    if fields is not None:
        digests.append(("fields", repr(list(fields))))

    queries: StoredQueries | None = None
    if queries_file is not None:
        lines = Lines(queries_file)
        queries = StoredQueries(lines, report)
        digests.append(("queries", lines.digest()))

    document_ids = documents.ids
    query_ids = document_ids if queries is None else queries.ids
    files = find_splits(folder / "qrels")
    are_inherited = False
    if queries_file is not None and not files:
        files = find_inherited_qrels(queries_file, corpus.path.parent, query_ids, document_ids)
        are_inherited = bool(files)
    has_mates = queries is None or are_inherited
    judgements: dict[str, Pairs] = {}
    is_judged = np.zeros(len(query_ids), np.bool_)
    for split, file in files:
        lines = Lines(file)
        judgements[split] = read_qrels(
            lines, split, query_ids, document_ids, has_mates, strict, report
        )
        is_judged[judgements[split].rows] = True
        digests.append((f"qrels/{split}", lines.digest()))

    for place in (WEIGHTS, PEOPLE):
        read_values(folder / place, judgements, query_ids, document_ids, strict, report, digests)
    report.queries_without_judgements = int(np.count_nonzero(~is_judged))
    return Collection(
        path=folder,
        documents=documents,
        queries=queries,
        has_mates=has_mates,
        splits=tuple(judgements),
        report=report,
        fingerprint=hashlib.sha256(repr(sorted(digests)).encode()).hexdigest(),
        judgements=judgements,
        fields=choose_fields(documents, schema, fields),
        anchors=anchors.held_out,
    )


def _read_schema(
    folder: Path, corpus_folder: Path, digests: list[tuple[str, str]]
) -> Schema | None:
    for place in (folder, corpus_folder):
        if (place / SCHEMA).is_file():
            lines = Lines(place / SCHEMA)
            content = b"".join(line for _, line in lines)
            digests.append(("schema", lines.digest()))
            return parse_schema(lines.path, content)
    return None
