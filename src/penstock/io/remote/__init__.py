"""Files behind a URL: requests, sessions, and when to try again."""
