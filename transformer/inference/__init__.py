"""Inference with trained models: text in, text or scores out."""
