"""Features for words that a model does not know, so that a live document is found by its own words.

    s ← [s | s′]        t ← [t | t′]        width F + R

An unknown word w has feature F + crc32(w) mod R in documents and queries (Vocabulary.bucket). Its weight is that of a
known word of the highest idf, under the diagonal that most words of a field have. The model's own encoding of a text
stays the same: queries without unknown words, and documents encoded before, do not change.

These R buckets are added to a trained model and have no trained weights. The `buckets` of a recipe are part of the
model: they are trained, and a model with them knows every word.

model.py    OpenModel: a model with these features; live_model: None for a model that cannot take live documents
            OpenScorer: the same for a model that is no inner product
keys.py     the buckets of other forms of unknown words
rules.py    rule_of: which words are unknown, and their weights, for each kind of model; features of a query's words
"""

from fullrank.models.unseen.model import KIND, ROWS, OpenModel, live_model, without_unseen

__all__ = ["KIND", "ROWS", "OpenModel", "live_model", "without_unseen"]
