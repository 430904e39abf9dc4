"""Models of pictures: patches instead of words, and the baselines of other papers."""
