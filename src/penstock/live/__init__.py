"""The live page: what runs on this host, written by those that run, and shown to whoever looks."""
