"""The reading layer: where bytes are, how to read them, and what formats say of them."""
