"""Exports a run's model to the formats of other programs."""
