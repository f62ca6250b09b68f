"""Words that a model does not know, in rows of their own behind what it knows.

    s ← [s | s′]        t ← [t | t′]        width F + R

An unseen word w falls into row crc32(w) mod R, of documents and of queries alike. It weighs there what the model's
exact part gives a word as rare as any that it knows, under the diagonal that most words of a field have. What the model
itself says of a text, u, v, s and t, stays as it is: a query without unseen words, and documents encoded before, are
what they were.

OpenModel, live_model   model.py     a model with these rows; None for one that takes no live documents
OpenScorer              model.py     the same for a model that is no inner product
Rule, rule_of           rules.py     which words are unseen, and what they weigh: by kind of model
                        columns.py   sparse columns of known and of unseen words, apart and side by side
"""

from fullrank.models.unseen.model import KIND, ROWS, OpenModel, live_model

__all__ = ["KIND", "ROWS", "OpenModel", "live_model"]
