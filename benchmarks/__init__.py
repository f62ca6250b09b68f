"""Measure every figure that the documentation publishes."""
