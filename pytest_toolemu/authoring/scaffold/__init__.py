"""Files to start from, without a model: a small project, a toolkit, and a case."""
