"""Beam search and sampling with any step function, independent of the model."""
