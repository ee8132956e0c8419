"""Which values are secrets, and in which forms they can appear."""
