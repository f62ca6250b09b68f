"""Rules: what an operator decides about the answers to some queries.

rule.py       a rule, read from JSON and checked; the rules that apply to a query
synonyms.py   the texts that synonyms make of a query, and the encoded query with their features
places.py     pinned documents in a ranking, page by page
"""
