"""Recipes: TOML files with every setting of a model and its training, and their reader."""
