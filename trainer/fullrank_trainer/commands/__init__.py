"""The commands of this package, registered as entry points: train, evaluate, index, recipes, demo."""
