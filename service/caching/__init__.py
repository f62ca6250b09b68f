"""What is remembered, so that it is not worked out again. Gone or wrong, it costs time, never an answer.

cache.py        embeddings in process, and the form in which they are stored
redis_cache.py  and behind it in Redis, shared by the workers
breaker.py      leaves a broken Redis alone
worth.py        whether Redis is quicker than encoding
bitmaps.py      which documents a filter lets through
"""
