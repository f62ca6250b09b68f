"""Retrieval: the top k of the full score over all documents, ties by document id.

retriever.py    Retriever.search: one query or a batch, exact or fast, with deleted documents masked
candidates.py   approximate scores of all documents or of those that the fast mode reads; how many have evidence
select.py       from approximate scores with an error bound to the proven top k
scoring.py      scores of encoded texts, and their explanation
ranking.py      Required: the words that a document must have; the result of one query
tune.py         choose the effort of the fast mode by its measured recall
index/          the index: built with a bundle, or in memory
"""

from fullrank.retrieval.ranking import MATCHES, Match, Ranking, Required
from fullrank.retrieval.retriever import Retriever
from fullrank.storage.encoding import Mask
from fullrank.storage.floor import Floor

__all__ = ["MATCHES", "Floor", "Mask", "Match", "Ranking", "Required", "Retriever"]
