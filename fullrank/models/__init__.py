"""The models that a bundle can hold.

contract.py      Model: what every family implements; Parts: what a bundle stores of it
registry.py      load_model: from the kind in a bundle to its family
linear/          qᵀWd with W = UᵀV + D: tf-idf, BM25, LSI, SSI, fielded models, towers
pairs.py         qᵀWd with one weight per pair of words
expansion.py     a linear model whose queries are expanded by blind feedback
language.py      query likelihood: unigram, topics, word translation
translation.py   word translation before a linear model
clicks.py        what a blend has learned of clicks
memory.py        what people chose before, for a query and at all
mentions.py      documents that a text names
mixed.py         a weighted sum of models
widening.py      features that synonyms and completions add to a query
words.py         the words that a model knows, and what an unknown one may mean
corrections.py   known words in the place of unknown words of a query
reading.py       queries and documents that are read once for several models
unseen/          features for words that a model does not know
"""
