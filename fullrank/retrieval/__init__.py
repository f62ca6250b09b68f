"""Retrieval: the top-k of the full score over all documents, ties by id.

retriever.py   Retriever.search: one query or a batch, exact or fast, filtered
truth.py       the documents as they are: exact scores of given rows, a float32 scan of all
select.py      from a scan with a bound on its error to the proven top-k
compact.py     the scan of a bundle's index: int8 codes and 8-bit impacts
fast.py        candidates of both sides, scored exactly; what that finds is measured, not proven
ranking.py     an answer
"""

from fullrank.retrieval.ranking import Mask, Ranking
from fullrank.retrieval.retriever import Retriever

__all__ = ["Mask", "Ranking", "Retriever"]
