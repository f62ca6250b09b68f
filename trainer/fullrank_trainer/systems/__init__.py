"""The systems: how each family of models is fitted."""
