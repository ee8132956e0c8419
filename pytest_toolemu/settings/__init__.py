"""The options of the plugin: their table, how their values are found, and the names of models in them."""
