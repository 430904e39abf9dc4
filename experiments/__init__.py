"""Applications of the library: training, modes, sweeps, pages and figures."""
