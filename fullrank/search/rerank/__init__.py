"""The second stage: trees reorder the first documents of a ranking.

facts.py     words, lengths, clicks and date of each document
features.py  the features of a query and each of its first documents
trees.py     regression trees as arrays
stage.py     SecondStage: order, explain, stored form
"""
