"""From text to weighted features, the same for training and serving.

words.py       split a text into words, Korean ones without particles; letter trigrams, known 2-grams
sequences.py   words and compounds of many texts as numbers, by a kernel
features.py    Vocabulary, count_corpus, tf-idf and BM25 weights
phrases.py     whole titles as features
spelling.py    known words one edit away from an unknown word, and words that a query's word may stand for
folding.py     keys under which forms of a word are equal; stems
compounds.py   words that are joined or parted
forms.py       other forms of a word among known words
"""
