"""Authentication: API keys, scopes, and callers without a key."""
