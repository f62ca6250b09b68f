"""Bundles in the search engines that teams already run: `fullrank export`, and the queries of each engine.

source.py          Source: the documents of a bundle as an engine stores them; EncodedQuery
target.py          export: what --to names
qdrant.py          points and requests of Qdrant, for a server and for a local shard
postgresql.py      a table with pgvector, and its statement
opensearch.py      a bulk file with its mapping, and the body of a search
vespa.py           a feed file with its schema, and the body of a query
command.py         the command

    score = s·t + u·v + b = s·t + [u ‖ 1]·[v ‖ b]

Every engine stores t (`terms`) and [v ‖ b] (`dense`) in float32. No client of an engine is imported before it is used.
"""
