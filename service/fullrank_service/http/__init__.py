"""What all routes share: entry, keys, admission, problems, strict JSON, OpenAPI."""
