"""Which rows of a node are wanted: one of every few, and in each pass over them perhaps another."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Residue:
    """Rows with `row % modulus == of(epoch)`, told by what is wanted of the rows that are made of them."""

    modulus: int
    shift: int = 0
    factor: int = 1
    outer: "Residue | None" = None
    passes: int = 0
    """How many epochs of these rows are one of those; 0 if epochs are the same."""
    pass_rows: int = 0
    """The rows of each of these passes."""

    def of(self, epoch: int) -> int:
        """Return the remainder that wanted rows have in an epoch."""
        found = 0
        if self.outer is not None:
            number = 0
            if self.passes:
                epoch, number = divmod(epoch, self.passes)
            found = self.outer.of(epoch) - number * self.pass_rows
        return (found * self.factor + self.shift) % self.modulus

    def shifted(self, count: int) -> "Residue":
        """Return the same for rows whose numbers are larger by `count`."""
        return Residue(self.modulus, count, outer=self)

    def dealt(self, number: int, index: int) -> "Residue":
        """Return the same for rows of which these are the `index`-th of every `number`."""
        return Residue(self.modulus * number, index, number, self)

    def in_passes(self, count: int, num_rows: int) -> "Residue":
        """Return the same for rows that are read `count` times, one pass after the other."""
        return Residue(self.modulus, outer=self, passes=count, pass_rows=num_rows)

    def coarser(self, modulus: int) -> "Residue":
        """Return the same for a divisor of the modulus: more rows are wanted."""
        return Residue(modulus, outer=self)
