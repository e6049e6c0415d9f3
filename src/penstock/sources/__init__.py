"""Where rows live: one file a format."""
