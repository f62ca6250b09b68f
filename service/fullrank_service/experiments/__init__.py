"""Try other documents on people: those of a candidate version, or those that were shown too rarely.

status.py   the votes so far, and what they decide
loop.py     retrain, experiment, promote, roll back: whatever is due
trying.py   rank with the active version, or with two, or with a small deviation
"""
