"""Compare two models on the people who use them.

interleave.py   one list of two rankings, each of which picks documents in turn
exploring.py    show a document a place higher or lower than ranked, to learn what a place is worth
votes.py        which of the two rankings people clicked
evidence.py     when the votes decide
decisions.py    what the loop decided about each version
"""
