"""The figures. One that is not defined for its input is None, never a number; one that is drawn from a sample of cases
has an interval.

Cases are the unit of sampling: an agent is released to meet other cases than these. Trials of one case resemble each
other, so whatever is resampled or tested here is whole cases, with all their trials. NumPy is imported when a figure is
drawn, never with this package: it is heavy for a run that needs no figure.
"""
