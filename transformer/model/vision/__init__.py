"""Models of pictures: patches in place of words, and the baselines of other articles."""
