"""Caches of a search. A missing or wrong value makes an answer slower, never different.

cache.py        embeddings of texts, in the process and in a shared store
embedding.py    their keys, and the bytes of the shared store
redis_cache.py  embeddings in Redis, shared by the workers
bitmaps.py      the documents that match a filter
"""
