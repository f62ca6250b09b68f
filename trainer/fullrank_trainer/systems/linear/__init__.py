"""Fit the linear family: tf-idf, BM25, LSI, supervised semantic indexing and towers."""
