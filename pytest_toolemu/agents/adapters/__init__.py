"""Run agents of other frameworks with emulated tools. Each module imports its framework inside its functions."""
