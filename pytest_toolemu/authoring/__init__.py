"""Create, check, import, and measure toolkits and cases."""
