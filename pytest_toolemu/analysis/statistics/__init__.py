"""Statistics of scores: estimates with intervals, tests of change, and agreement between raters.

A metric that is undefined for its input is None, never a number. An estimate from a sample of cases has an interval.

Cases are the unit of sampling, because a released agent meets other cases than the tested ones. Trials of one case are
correlated, so resampling and tests always work on whole cases with all their trials. Functions import NumPy when they
need it, because importing it takes too long for sessions that compute no statistics.
"""
