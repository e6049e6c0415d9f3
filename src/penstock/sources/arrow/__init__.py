"""Arrow IPC files, and Arrow's columns as penstock's."""
