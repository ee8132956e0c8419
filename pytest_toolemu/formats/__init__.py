"""Read and write the text formats that all other layers share: YAML, JSON, JSON Schema."""
