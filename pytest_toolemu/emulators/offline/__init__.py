"""Emulate tools without a model: values follow from the seed and the schemas."""
