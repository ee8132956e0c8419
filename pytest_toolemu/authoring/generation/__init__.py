"""Drafts toolkits and cases with a model. Code plans the variety, checks every draft, and writes the files."""
