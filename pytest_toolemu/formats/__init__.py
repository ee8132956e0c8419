"""Read and write the text formats that everything else shares: YAML, JSON, JSON Schema."""
