"""cache: the rows of the first epoch, kept in memory or in a folder."""
