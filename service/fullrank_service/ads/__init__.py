"""Ads in placements of pages."""
