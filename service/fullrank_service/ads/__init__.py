"""Ads in placements of pages.

rules.py     which ads a page may show, and which a placement; taxonomies
placing.py   the loop that fills placements, on one machine and on a router
filling.py   which documents of this process go into which placement
pages.py     the texts of pages by address
"""
