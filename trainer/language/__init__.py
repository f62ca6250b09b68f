"""Language models: topics over clicked pairs, word translation."""
