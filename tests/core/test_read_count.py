"""Bytes that a thread reads count for the stream that it works for."""

import threading

from penstock.core.read_count import ReadCount, count_read


def test_reads_count_where_a_thread_says_so_and_the_innermost_counts():
    outer, inner = ReadCount(), ReadCount()
    count_read(1)
    with outer.counting():
        count_read(10)
        with inner.counting():
            count_read(100)
        count_read(1000)
    count_read(1)
    assert (outer.nbytes, inner.nbytes) == (1010, 100)


def test_threads_count_each_for_themselves_and_lose_nothing():
    counts = [ReadCount(), ReadCount()]

    def work(count: ReadCount) -> None:
        with count.counting():
            for _ in range(5000):
                count_read(1)

    threads = [threading.Thread(target=work, args=(counts[number % 2],)) for number in range(4)]
    with counts[0].counting():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [count.nbytes for count in counts] == [10_000, 10_000]
