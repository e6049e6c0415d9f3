"""Which of several ranks this process is, and whether all of them read the same data.

Each engine has a file, `by_<engine>.py`, that asks it for the rank and for its key-value store. None of them imports a
framework: one that the user has not imported can't be initialised.
"""
