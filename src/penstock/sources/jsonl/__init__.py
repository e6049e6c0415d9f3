"""JSON Lines: a row is an object on a line of its own."""
