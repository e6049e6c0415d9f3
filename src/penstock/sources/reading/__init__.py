"""What the formats share: files as parts, fields as leaves, rows with random access."""
