"""The parts of a run's record that only some runs have."""
