"""Commands that draft files with a model, and that check and review the drafts."""
