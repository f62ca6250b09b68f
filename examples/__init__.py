"""Short programs that show one use of Fullrank each. Run them from the repository: python -m examples.NAME."""
