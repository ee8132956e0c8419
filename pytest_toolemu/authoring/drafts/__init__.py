"""Drafts: cases and toolkits that a model wrote and nobody has accepted yet."""
