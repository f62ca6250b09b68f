"""Experiments with a candidate version: their votes (status.py), and the loop that acts on them (loop.py)."""
