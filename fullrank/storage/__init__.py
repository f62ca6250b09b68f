"""What arrays and files hold: rows and encoded texts, records, strings, documents, JSON.

encoding.py     Rows, Encoded: texts as a dense vector, a sparse vector and a bias
records.py      encoded documents that stay in a file
checks.py       describe and check stored arrays
strings.py      tables of strings, and of documents
documents.py    a document, and the line that stores its fields
floor.py        the evidence that a hit needs, as a manifest stores it
strict_json.py  JSON and times from outside; files.py: locks, replacing files
"""
