"""Compare two models on the people who use them.

interleave.py   one list of two rankings, or of one that explores
votes.py        which of the two rankings people clicked
decisions.py    when the votes decide, and what the loop decided about each version
"""
