"""Allure: results completed by what runs were, and the files beside them. Nothing else imports allure."""
