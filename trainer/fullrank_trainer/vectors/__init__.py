"""Read pretrained word vectors: the text format of word2vec and fastText, and models of model2vec."""
