"""Compiled kernels of the path of a query.

arrays.py     what all kernels share: types of arrays, prefetching, rounding, a stable order
compiler.py   compile a kernel when its module is imported, so that none is compiled in a request
scoring.py    float64 scores of given documents
scan.py       approximate scores of all documents from an index
exact.py      the candidates of the exact mode
fast.py       the candidates of the fast mode
select.py     the rows of the best approximate scores
evidence.py   which words of a query a document has, and whether that is evidence
rows.py       sorting, renumbering, adding and multiplying sparse rows; posting lists of them
encode.py     from counts of a query to u and s
records.py    records of documents, read from a file or copied
tokens.py     tokens of texts, numbered and counted
words.py      strings in a hash table
joined.py     phrases in a sequence of words, and neighbouring words that may be a word
products.py   int8 codes of vectors and queries, and their products

Kernels take C-contiguous arrays, release the interpreter lock and use no fast math: a sum has one order, so its bits do
not depend on the instructions that the processor has. Each has a numpy twin in the tests.
"""
