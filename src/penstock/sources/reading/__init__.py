"""What formats are made from: files as parts, fields as leaves, rows by random access."""
