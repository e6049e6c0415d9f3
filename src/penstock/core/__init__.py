"""The basic types that all other packages use: rows and blocks, specs and nests, order, state."""
