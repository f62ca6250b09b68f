"""Evaluation: rank through the code that serves, measure, read and write TREC files."""
