"""What stages are made from: the declaration, its nodes, and what several stages share."""
