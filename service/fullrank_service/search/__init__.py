"""Search: from a text to ranked documents (ranker.py, ranking.py), and the cache of embeddings (cache.py)."""
