"""The words that everything uses: rows and blocks, specs and nests, order, state."""
