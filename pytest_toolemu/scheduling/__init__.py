"""Run many cases at once: a coordinator per session decides what runs where, an adaptive limit per provider key decides
how many requests may be in flight.

The scheduler knows no case, no model, and no pytest: it runs jobs, which are coroutine functions, by the index of their
item.
"""
