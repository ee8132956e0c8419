"""Exchanges with models, written down once and played again: one readable file for each item."""
