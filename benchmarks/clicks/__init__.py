"""Simulate people who click, to measure what a ranking learns from them.

worlds.py     how people look at a list and what they click
sessions.py   one round of searches: served lists and events, as the service logs them
rounds.py     train, serve, log, train again
versus.py     experiments between two rankings of a known difference
spam.py       accounts that click for their own documents
"""
