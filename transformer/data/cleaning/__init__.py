"""Cleaning of sentence pairs: rules, filters, and their use on text of any size."""
