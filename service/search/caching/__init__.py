"""Caches of a search. A missing or wrong value makes an answer slower, never different.

cache.py        embeddings in the process, and the form in which they are stored
redis_cache.py  embeddings in Redis, shared by the workers
bitmaps.py      the documents that match a filter
"""
