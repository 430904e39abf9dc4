"""Metrics of model outputs."""
