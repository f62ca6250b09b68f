"""The second stage: LambdaMART over the first documents of each ranking, trained on the validation split.

documents.py   what the features read of the collection: fields, clicked text, clicks, a date
candidates.py  the first documents of each validation query: features and grades
boosting.py    LightGBM: fit trees, and take them over as arrays
crossfit.py    judge every query by trees that did not see it
decide.py      fit, judge, measure the time, keep the second stage or not
"""
