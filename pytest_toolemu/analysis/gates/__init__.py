"""Release gates: rules about metrics that decide whether an agent may be released.

Gates are decided from run summaries alone, so a decision can be repeated later from the records.
"""
