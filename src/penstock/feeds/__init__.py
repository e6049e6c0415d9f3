"""Feeds: batches as a framework takes them, one folder for each. Frameworks are imported only here."""
