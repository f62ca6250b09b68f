"""What the log of events says about everybody: completions, documents clicked together, click probabilities."""
