"""What happens to rows: one file a stage."""
