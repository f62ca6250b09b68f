"""Files, string tables and document stores on disk."""
