"""Recipes: the keys that depend on the size of a training text, with a module for each task."""
