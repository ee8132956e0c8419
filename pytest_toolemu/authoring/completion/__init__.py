"""Completes toolkits and cases that a person began, with a model."""
