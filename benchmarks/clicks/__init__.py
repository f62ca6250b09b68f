"""What clicks teach: in the log of a real shop, and simulated."""
