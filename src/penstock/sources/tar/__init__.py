"""WebDataset tars: files of one key that follow each other are a sample."""
