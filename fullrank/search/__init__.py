"""One search over the documents of a bundle and those added since.

query.py       Analyzer: from a text to a Query
part.py        Query; Part: documents with one retriever; NewClicks: clicks that a bundle has not learned yet
searchable.py  Searchable: the parts of a collection; Hits: the answer to a query
complete.py    what people may be typing; highlight.py: what of a document answers a query
ordering.py    other orders than that of the score: fields, boosts, groups, variety
rerank/        the second stage: trees reorder the first documents of a ranking
rules/         what an operator decides about the answers to some queries
"""
