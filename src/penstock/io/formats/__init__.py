"""How bytes lie in files of a format, read without trust: headers, directories, indexes, lines."""
