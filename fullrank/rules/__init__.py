"""Rules: what an operator decides about the answers to some queries.

rule.py       a rule, read from JSON and checked
matching.py   the rules that apply to a query, found by the query's words
synonyms.py   the texts that synonyms make of a query, and the encoded query with their features
places.py     pinned documents in a ranking, page by page
"""
