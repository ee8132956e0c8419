"""Judge a finished trajectory: a model with a rubric, or the case's own checks."""
