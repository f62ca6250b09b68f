"""The training loop that all systems share: epochs, validation, early stopping, checkpoints."""
