"""Reports: what a stream did, as a value, and what it looks like as text, JSON, a page, a trace."""
