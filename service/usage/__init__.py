"""What people's use of the service says to others: completions, and documents clicked together."""
