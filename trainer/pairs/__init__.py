"""Word pairs: W whole, sparse or hashed."""
