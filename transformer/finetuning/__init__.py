"""Starting from the weights of a run that was trained before."""
