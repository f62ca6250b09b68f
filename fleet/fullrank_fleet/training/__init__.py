"""Training by slices: local SGD with averaging.

inputs.py      which slice a query belongs to; the matrices that slices train on, as files
rounds.py      one slice in one round: a task
averaging.py   one model of what all slices learned
learner.py     the learner that takes its steps on slices
"""
