"""From a log of clicks to a new version: train candidates, choose one, let it pass the gates, publish it.

replay.py    what logged queries find, and how fast
gates.py     conditions that a candidate must meet before people see it
mix.py       add judgements of a collection to those of clicks
start.py     whether training goes on from the active version
retrain.py   all steps, in a folder that two trainings of one model cannot share
"""
