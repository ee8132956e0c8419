"""The end of the process, whatever the tested agents left behind."""
