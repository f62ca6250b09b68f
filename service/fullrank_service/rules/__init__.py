"""Rules of operators: one file that every worker follows; search/ruled.py applies them."""
