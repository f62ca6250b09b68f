"""Orders other than that of the score: fields, boosts, groups, variety.

    Ordering   what a request asks for
    ordered    the hits of a view in that order

boosts.py     numbers and times of documents that raise their scores
sorting.py    the order by fields
groups.py     at most so many hits of a group
diversity.py  hits unlike those before them
order.py      all of them together
"""
