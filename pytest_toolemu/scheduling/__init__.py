"""Many cases in flight: one hub a session says what runs where, and one limit a provider says how many requests wait.

Knows no case, no model and no pytest: what flies is an index, and jobs are coroutines.
"""
