"""From the log of events to a collection with weights.

join.py     votes: who saw which document at which place, and whether they clicked it
texts.py    how well each document fits its query, learned from clicks on other queries
mixture.py  how likely a place is looked at, and how likely a clicked document answers the query
weights.py  how relevant a clicked document is
imports.py  click logs of other programs, CSV and TSV among them, into the log of events
export.py   a collection: queries, judgements, weights
"""

from fullrank_trainer.clicks.export import write_collection
from fullrank_trainer.clicks.join import Coins, Votes, join
from fullrank_trainer.clicks.mixture import Propensities, fit_propensities
from fullrank_trainer.clicks.texts import rank_by_text
from fullrank_trainer.clicks.weights import Judged, weigh

__all__ = [
    "Coins",
    "Judged",
    "Propensities",
    "Votes",
    "fit_propensities",
    "join",
    "rank_by_text",
    "weigh",
    "write_collection",
]
