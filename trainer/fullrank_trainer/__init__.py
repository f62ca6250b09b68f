"""Collections in, bundles out: readers, training, evaluation."""
