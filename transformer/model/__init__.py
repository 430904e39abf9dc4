"""What is computed: masks, positions, attention, layers and whole models."""
