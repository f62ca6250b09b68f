"""Try other documents on people: those of a candidate version, or those that were shown too rarely.

tried.py    what was tried on one list
status.py   the votes so far, and what they decide
report.py   both for operators: votes and decisions over HTTP
training.py the training that the loop begins, and what it printed
loop.py     retrain, experiment, promote, roll back: whatever is due
trying.py   rank with the active version, or with two, or with a small deviation
"""
