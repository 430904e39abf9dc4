"""What the attention of a trained model shows."""
