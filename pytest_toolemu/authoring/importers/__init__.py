"""Convert files of other tools, such as the official ToolEmu data, into cases, toolkits, and runs."""
