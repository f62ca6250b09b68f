"""Rules of operators: kept in the log of live documents; search/ruled.py applies them."""
