"""From text to weighted features, the same for training and serving.

words.py      split a text into words; letter trigrams
spans.py      words with their places in a text
korean.py     Korean words without particles
counting.py   count phrases with several processes
sequences.py  words and compounds of many texts as numbers, by a kernel
features.py   Vocabulary, count_corpus, tf-idf and BM25 weights
bigrams.py    known 2-grams as features
phrases.py    whole titles as features
variants.py   known words that a query's word may stand for
spelling.py   known words one edit away from an unknown word
odds.py       typing errors against random letters
folding.py    keys under which forms of a word are equal
reading.py    queries that are read once for several models
compounds.py  words that are joined or parted
forms.py      other forms of a word among known words
form_tables.py  what forms are found by
"""
