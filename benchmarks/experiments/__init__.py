"""Experiments: measure the findings of the papers again."""
