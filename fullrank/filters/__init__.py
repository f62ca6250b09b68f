"""Filters and facets: the query language, the counts, and the columns that both read."""
