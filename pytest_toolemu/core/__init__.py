"""What a case is, and how one is run. Imports no SDK and no pytest."""
