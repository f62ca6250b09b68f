"""Search engines and vector indexes that a user would install otherwise, each with its documented settings."""
