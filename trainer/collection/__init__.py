"""Read collections: corpora, queries and judgements; write the demo collection."""

from trainer.collection.judgements import QRELS_HEADER, Qrels, count_answered, relevant
from trainer.collection.queries import Query, read_queries
from trainer.collection.reader import Collection, read_collection
from trainer.collection.report import ReadReport
from trainer.collection.schema import FieldVerdict

__all__ = [
    "QRELS_HEADER",
    "Collection",
    "FieldVerdict",
    "Qrels",
    "Query",
    "ReadReport",
    "count_answered",
    "read_collection",
    "read_queries",
    "relevant",
]
