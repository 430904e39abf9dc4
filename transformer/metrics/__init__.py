"""Scores of what a model makes of a text."""
