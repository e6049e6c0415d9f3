"""`python -m penstock` is the command `penstock`."""

from penstock.cli import run

if __name__ == "__main__":
    run()
