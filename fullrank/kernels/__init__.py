"""Compiled kernels of the path of a query.

arrays.py     the types of arrays
compiler.py   compile a kernel when its module is imported, so that none is compiled in a request
scoring.py    float64 scores of given documents
scan.py       approximate scores of all documents from an index
exact.py      the candidates of the exact mode
rounding.py   what float32 may be off by
select.py     the rows of the best approximate scores
rows.py       sorting, renumbering, adding and multiplying sparse rows
encode.py     from counts of a query to u and s
fast.py       the candidates of the fast mode
heads.py      what it reads of posting lists
pools.py      which documents it estimates
evidence.py   the documents that have evidence
largest.py    the largest entries of sparse rows
records.py    records of documents, read from a file
gather.py     copies of encoded documents
tokens.py     tokens of texts, numbered and counted
words.py      strings in a hash table
phrases.py    phrases in a sequence of words
joined.py     neighbouring words that may be a word
lists.py      posting lists of sparse rows
products.py   products of int8 codes
groups.py     the same, of 16 documents at a time
codes.py      int8 codes of vectors and queries
prefetch.py   ask for memory before it is needed
sorting.py    a stable order

Kernels take C-contiguous arrays, release the interpreter lock and use no fast math: a sum has one order, so its bits do
not depend on the instructions that the processor has. Each has a numpy twin in the tests.
"""
