"""Applications built on the library: training, modes, sweeps, pages and figures."""
