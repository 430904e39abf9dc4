"""The training of a model: the loop, its step, and the run that it makes."""
