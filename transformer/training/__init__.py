"""Training: the loop, the step, and the bookkeeping of runs."""
