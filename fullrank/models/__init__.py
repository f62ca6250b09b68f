"""The models that a bundle can hold.

contract.py     Model: what every family implements; Parts: what a bundle stores of it
registry.py     load_model: from the kind in a bundle to its family
linear/         qᵀWd with W = UᵀV + D: tf-idf, BM25, LSI, SSI, fielded models, towers
pairs.py        qᵀWd with one weight per pair of words
expansion.py    a linear model whose queries are expanded by blind feedback
likelihood.py   scores by the likelihood of a query
shares.py       s·t by word of the document
widening.py     features that synonyms and completions add to a query
language.py     query likelihood: unigram, topics, word translation
stems.py        the rows of words in a vocabulary of stems
fold_in.py      the topics of a text that training did not see
translation.py  word translation before a linear model
corrections.py  known words in the place of unknown words of a query
mixed.py        a weighted sum of models
known.py        the words that a model knows, and what an unknown one may mean
familiar.py     whether a model knows the words of a query well enough
reading.py      documents that are read once for several models
unseen/         features for words that a model does not know
"""
