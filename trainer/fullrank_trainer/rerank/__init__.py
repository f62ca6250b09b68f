"""The second stage: LambdaMART over the first documents of each ranking, trained on the validation split.

candidates.py  what the features read of the collection; the first documents of each validation query
boosting.py    LightGBM: fit trees, take them over as arrays; judge every query by trees that did not see it
decide.py      fit, judge, measure the time, keep the second stage or not
"""
