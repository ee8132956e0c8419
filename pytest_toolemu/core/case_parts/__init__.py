"""The parts of case and toolkit files that have records of their own."""
