"""The library for people who use trained runs: see `transformer.load`."""
