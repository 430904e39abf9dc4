"""Image models: inputs, patch embeddings, positional encodings and augmentation."""
