"""Ads in placements of pages.

PageFilling, Slot   filling.py   which documents go into which placement
Pages               pages.py     the texts of pages by address
"""
