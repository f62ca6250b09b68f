"""Performance: speed, memory and quality of the product, as ratios to a peer in the same run."""
