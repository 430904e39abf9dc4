"""A model in use: text in, text or scores out."""
