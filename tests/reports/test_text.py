"""What print shows of a report."""

from tests.reports.reports import report

from penstock.reports.figures import Decided, DeviceTraffic, SkippedFile, StageShuffle, StageTime


def test_every_line_of_a_report_with_all_there_is():
    found = report(
        rank=1,
        world=4,
        read_nbytes=5_000_000,
        net_nbytes=2_000_000,
        device=DeviceTraffic(4000, 8000, 4000),
        stages=(StageTime("map(f)", 0.25, 500, num_processes=2, queue=1.5),),
        shuffles=(StageShuffle("shuffle(seed=0)", "exact, by index; mixing 1.00", 1.0),),
        decisions=(Decided("threads 2 -> 3", "the consumer waited", 0.5),),
        num_skipped=14,
        skipped=("a.npz, row 3: damaged\nin line 2",),
        skipped_files=tuple(SkippedFile(f"{number}.npz", 1) for number in range(14)),
        error="FunctionError: no",
    )
    assert str(found).splitlines()[:-1] == [
        "epoch 0 (rank 1 of 4): 50 batches with 500 rows, 4 KB in 5 blocks, 1.000 s (500 rows a second)",
        "  waited for data   0.500 s (50.0 %)",
        "      0.250 s  map(f), 500 rows, 2 processes, 1.5 blocks waiting",
        "  memory            peak 3 KB of a budget of 10 KB, held by the consumer 1 KB",
        "  read              5 MB from files",
        "  remote files      2 MB over the network, 0 B from the cache",
        "  to the device     4 KB in this epoch, 8 KB in all: each byte was copied 2.0 times",
        "  shuffled          shuffle(seed=0): exact, by index; mixing 1.00",
        "  decided           threads 2 -> 3 after 0.5 s: the consumer waited",
        "  skipped           14 bad rows",
        *(f"    1 of {number}.npz" for number in range(10)),
        "    and of 4 more files",
        "    a.npz, row 3: damaged",
        "    in line 2",
        "  failed            FunctionError: no",
    ]
    assert (
        str(found)
        .splitlines()[-1]
        .startswith("  bottleneck        map(f) is the bottleneck: 100 %")
    )


def test_rows_without_batches_are_called_rows():
    assert "epoch 0: 50 rows, 4 KB" in str(report(is_batched=False, num_rows=50))
