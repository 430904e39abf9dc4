"""Metrics of the outputs of models."""
