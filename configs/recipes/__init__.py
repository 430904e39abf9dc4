"""Recipes: config values that depend on the training set size, with one module per task."""
