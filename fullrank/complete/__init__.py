"""Completion of what a person is typing.

sorted_texts.py  texts sorted by their folded form, found by prefix or by a prefix one edit away
prefixes.py      the last word of a query as the beginning of known words, for a search
completions.py   queries, titles and words as completions, in their order
"""
