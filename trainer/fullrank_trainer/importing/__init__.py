"""From what people have to a collection: tables of documents (tables.py), folders of pages (pages.py)."""
