"""Neural networks: masks, positional encodings, attention, layers and complete models."""
