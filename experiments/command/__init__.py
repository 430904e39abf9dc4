"""The command-line interface, and the implementation of `transformer.train`."""
