"""The stages of a chain: one file or folder for each."""
