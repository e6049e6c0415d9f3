"""Folders of images."""
