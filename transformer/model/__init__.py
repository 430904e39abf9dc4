"""The networks: masks, positions, attention, layers and whole models."""
