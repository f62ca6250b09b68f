"""Peers: other systems, trained and measured on the same splits as Fullrank."""
