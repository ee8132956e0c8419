"""Write toolkits for tools that exist: of MCP servers, OpenAPI documents, lists of functions, and Python objects."""
