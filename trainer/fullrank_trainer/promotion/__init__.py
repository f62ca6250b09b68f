"""From a log of clicks to a new version: train candidates, choose one, let it pass the gates, publish it.

gates.py     ask logged queries again; conditions that a candidate must meet before people see it
retrain.py   where training begins, which judgements it adds, and all steps; one run per folder
"""
