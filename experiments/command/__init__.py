"""The commands, and what `transformer.train` calls."""
