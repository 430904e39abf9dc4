"""Text that is made by rule."""
