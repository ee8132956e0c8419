"""Record model calls once and replay them later: one readable file per test item."""
