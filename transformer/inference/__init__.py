"""Inference with trained models: translation, generation, classification and captioning."""
