"""Search: from a text to ranked documents (ranker.py, mode_policy.py), and the caches on the way."""
