"""Data that stays on a device: whether it does, and how batches are gathered there."""
