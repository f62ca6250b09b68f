"""What a fleet costs and survives: answers, swaps and faults on a cluster of this machine."""
