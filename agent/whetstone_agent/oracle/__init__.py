"""The check of a suite by its tasks' own solutions."""
