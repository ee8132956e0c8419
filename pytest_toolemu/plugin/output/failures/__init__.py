"""The texts of failed cases, and of cases without a verdict."""
