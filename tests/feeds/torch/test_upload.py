"""The way of a batch to CUDA, told by what stands in for it."""


class FakeCuda:
    """Notes what is asked of CUDA, in order."""

    class Leaf:
        def __init__(self, log):
            self.log = log

        def pin_memory(self):
            self.log.append("pin")
            return self

        def to(self, target, *, non_blocking):
            self.log.append(f"to {target.type} {non_blocking}")
            return self

        def record_stream(self, stream):
            self.log.append(f"record {stream.name}")

    def __init__(self):
        self.log = []
        self.type = "cuda"
        self.cuda = self

    def Stream(self, target):  # noqa: N802  # torch's name
        return "side"

    def stream(self, side):
        import contextlib

        self.log.append(f"enter {side}")
        return contextlib.nullcontext()

    name = "current"

    def current_stream(self, target):
        return self

    def wait_stream(self, side):
        self.log.append(f"wait {side}")


def test_cuda_batches_go_through_pinned_memory_on_a_stream_of_their_own():
    from penstock.feeds.torch.upload import uploader

    cuda = FakeCuda()
    leaf = FakeCuda.Leaf(cuda.log)
    assert uploader(cuda, cuda)((leaf,)) == (leaf,)
    assert cuda.log == ["enter side", "pin", "to cuda True", "wait side", "record current"]
