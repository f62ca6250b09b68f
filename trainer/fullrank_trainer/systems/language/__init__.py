"""Fit language models (unigram, topics, word translation) and translated queries."""
