"""Harness: train systems on a collection, measure each once, store and print the results."""
