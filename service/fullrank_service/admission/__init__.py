"""Admission: bounded queue, deadlines, rate limits."""
