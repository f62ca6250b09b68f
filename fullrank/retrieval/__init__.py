"""Retrieval: the top k of the full score over all documents, ties by document id.

retriever.py     Retriever.search: one query or a batch, exact or fast, with deleted documents masked
full_scan.py     approximate scores of all documents from their encoded form, with an error bound
index_scan.py    the same from a bundle's index: int8 codes and 8-bit impacts
select.py        from approximate scores with an error bound to the proven top k
required.py      Required: the words that a document must have
floor.py         Floor: the evidence that a document must have to be found
evidence.py      which documents reach a floor, and how many
fast.py          candidates of the fast mode; its recall is measured, not proven
tune.py          choose the effort of the fast mode by its measured recall
explain.py       split a score by part and by word
ranking.py       the result of one query
scratch.py       buffers that a thread reuses
index/           the index: built with a bundle, or in memory
"""

from fullrank.retrieval.floor import Floor
from fullrank.retrieval.ranking import Mask, Ranking
from fullrank.retrieval.required import MATCHES, Match, Required
from fullrank.retrieval.retriever import Retriever

__all__ = ["MATCHES", "Floor", "Mask", "Match", "Ranking", "Required", "Retriever"]
