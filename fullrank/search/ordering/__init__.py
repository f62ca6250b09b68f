"""Orders other than that of the score: fields, boosts, groups, variety.

    Ordering   what a request asks for
    ordered    the hits of a view in that order

sorting.py   the order by fields; numbers and times that raise scores
order.py     all orders together: groups, variety
"""
