"""Making and checking toolkits and cases."""
