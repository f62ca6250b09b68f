"""Encode a corpus of any size with a trained model and write it as a new bundle."""
