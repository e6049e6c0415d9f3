"""Files on this machine: listing them, and reading them past the page cache where that pays."""
