"""Read collections: corpora, queries and judgements; write the demo collection."""

from fullrank_trainer.collection.judgements import Qrels, count_answered, relevant
from fullrank_trainer.collection.reader import Collection, read_collection
from fullrank_trainer.collection.schema import FieldVerdict
from fullrank_trainer.collection.store import Query, read_queries
from fullrank_trainer.lines import ReadReport

__all__ = [
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
