"""Arrow IPC files, and columns of Arrow as ours."""
