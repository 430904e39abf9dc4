"""Analysis of the attention of trained models."""
