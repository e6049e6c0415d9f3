"""examples/augmentation.py: augmented anew each epoch, and the same in the same epoch, by rows and by batches."""

from tests.examples.runs import run


def test_rows_and_batches_are_augmented_alike():
    printed = run("examples/augmentation.py").splitlines()
    assert len(printed) == 6
    for first in (0, 3):
        assert "ArraySpec((None, 32, 32, 3), float32), 7 batches" in printed[first]
        assert printed[first + 1].endswith("anew: True")
        assert printed[first + 2].endswith("the same: True")
