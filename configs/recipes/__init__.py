"""Recipes: the keys that the size of a training text sets, a module for each task."""
