"""Completions, and documents clicked together: learned from the log of all people."""
