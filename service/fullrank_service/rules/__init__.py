"""Rules over HTTP: kept in one file (store.py), followed by every worker (rules.py), put into answers (search.py)."""
