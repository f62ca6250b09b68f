"""One search over the documents of a bundle and those added since.

query.py       Analyzer: from a text to a Query
part.py        Query; Part: documents with one retriever; NewClicks: clicks that a bundle has not learned yet
searchable.py  Searchable: the parts of a collection; Hits: the answer to a query
"""
