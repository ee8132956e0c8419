"""The pages of the web application, a module for each. ``ROUTES`` in each module are its addresses."""
