"""Routes: parse, call, return."""
