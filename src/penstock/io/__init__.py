"""The reading layer: where bytes are, how to read them, and how file formats lay them out."""
