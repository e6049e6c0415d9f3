"""Where the functions of the user run: on threads, in worker processes, or at the hand-over."""
