"""The arrays and programs of a training on its devices."""
