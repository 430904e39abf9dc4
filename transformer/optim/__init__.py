"""Optimizers and learning-rate schedules [5.3]."""
