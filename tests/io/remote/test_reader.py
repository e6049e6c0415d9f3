"""Files behind a URL, read for real from a server that stalls, resets, lies and cuts off."""

import os
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from penstock.errors import AccessError, DataError, FileChangedError, MissingFileError, ReadError
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.paths import expand
from penstock.io.reader import Range
from penstock.io.remote import session as sessions
from penstock.io.remote.reader import MAX_REQUEST, RemoteReader
from penstock.io.remote.retry import RetryPolicy

pytest.importorskip("aiohttp")
pytest.importorskip("fsspec")

QUICK = RetryPolicy(num_attempts=4, first_delay=0.001, max_delay=0.01)
# Long enough for a busy machine to answer in, short enough to wait for.
IMPATIENT = RetryPolicy(num_attempts=4, first_delay=0.001, max_delay=0.01, stall_timeout=1.0)
PERSISTENT = RetryPolicy(num_attempts=50, first_delay=0.001, max_delay=0.01)
SIZE = 300_000


@pytest.fixture
def content(server) -> np.ndarray:
    content = np.random.default_rng(0).integers(0, 256, SIZE, dtype=np.uint8)
    server.files["/x.bin"] = content.tobytes()
    return content


@pytest.fixture
def location(server, content) -> Location:
    return Location(server.url("/x.bin"), SIZE, etag=server.etag)


@pytest.fixture
def reader(location):
    with RemoteReader(location, retry=QUICK) as reader:
        yield reader


def read(reader, offset: int, nbytes: int) -> np.ndarray:
    target = np.zeros(nbytes, np.uint8)
    reader.read_into(target, offset)
    return target


def test_a_url_is_listed_with_size_and_version(server, content):
    (found,) = expand(server.url("/x.bin"))
    assert (found.size, found.etag, found.is_remote) == (SIZE, '"1"', True)
    with open_reader(found) as reader:
        np.testing.assert_array_equal(read(reader, 10, 1000), content[10:1010])
        reader.check_unchanged()


@pytest.mark.parametrize(("offset", "nbytes"), [(0, SIZE), (0, 1), (SIZE - 1, 1), (77, 100_000)])
def test_every_byte_is_right(reader, content, offset, nbytes):
    np.testing.assert_array_equal(read(reader, offset, nbytes), content[offset : offset + nbytes])


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data://x", "http://"]
)
def test_a_redirect_to_what_is_no_web_address_is_refused_at_once(location, server, target):
    server.faults["GET"].append(target)
    with RemoteReader(location) as reader, pytest.raises(DataError, match="no web address"):
        read(reader, 0, 10)
    assert len(server.requests) == 1


def test_a_redirect_in_a_circle_is_refused_at_once(location, server):
    server.faults["GET"].extend([location.url] * 100)
    with RemoteReader(location) as reader, pytest.raises(DataError, match="circle"):
        read(reader, 0, 10)
    assert len(server.requests) < 20


OPTIONS = {
    "headers": {"headers": {"Authorization": "secret", "X-Key": "secret", "Cookie": "k=secret"}},
    "headers of the client": {"client_kwargs": {"headers": {"X-Key": "secret"}}},
    "cookies of the client": {"client_kwargs": {"cookies": {"k": "secret"}}},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
@pytest.mark.parametrize("address", ["http://localhost:{}/x.bin", "//localhost:{}/x.bin"])
def test_a_redirect_to_another_server_takes_no_secrets_along(server, content, options, address):
    seen = []
    plain = server.RequestHandlerClass.do_GET

    class Handler(server.RequestHandlerClass):
        def do_GET(self):  # noqa: N802  the name that http.server wants
            seen.append(str(self.headers))
            plain(self)

    server.RequestHandlerClass = Handler
    location = Location(server.url("/x.bin"), SIZE, storage_options=options)
    server.faults["GET"].append(address.format(server.server_address[1]))
    with RemoteReader(location, retry=QUICK) as reader:
        np.testing.assert_array_equal(read(reader, 5, 1000), content[5:1005])
        assert ["secret" in headers for headers in seen] == [True, False]
        server.faults["GET"].append(location.url + "?again")
        read(reader, 0, 10)  # The same server gets them.
    assert ["secret" in headers for headers in seen[2:]] == [True, True]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
@pytest.mark.parametrize("path", ["/data/", "/data/*.bin"])
def test_a_page_of_links_on_another_server_is_refused_before_that_gets_secrets(
    server, options, path
):
    seen = []
    plain = server.RequestHandlerClass.do_GET

    class Handler(server.RequestHandlerClass):
        def do_GET(self):  # noqa: N802  the name that http.server wants
            seen.append(self.headers["Host"])
            plain(self)

    server.RequestHandlerClass = Handler
    server.faults["GET"].append(f"http://localhost:{server.server_address[1]}/data/")
    # fsspec takes a folder of a glob that it can't list for one without files.
    with pytest.raises(DataError, match=r"/data/.*: (its list of .* another server|nothing match)"):
        expand(server.url(path), storage_options=options)
    assert not [host for host in seen if host.startswith("localhost")]


def test_a_page_of_links_without_end_is_refused(server, monkeypatch):
    monkeypatch.setattr(sessions, "_PAGE_NBYTES", 1 << 20)
    server.files["/data/"] = server.files["/data"] = b'<a href="b.npy">b</a>' * 100_000
    for url in ("/data/", "/data/*.npy"):
        with pytest.raises(DataError, match=r"/data/?: its list of files has more than 1 MB"):
            expand(server.url(url))


def test_nothing_asked_is_nothing_requested(reader, server):
    reader.read_into(bytearray(0), 5)
    reader.read_ranges([])
    assert not server.requests


@pytest.mark.parametrize("fault", ["503", "500", "429", "408", "reset", "truncate"])
def test_what_passes_is_tried_again(reader, server, content, fault):
    server.faults["GET"].extend([fault] * 3)
    np.testing.assert_array_equal(read(reader, 100, 50_000), content[100:50_100])
    assert len(server.requests) == 4


def test_a_server_that_stalls_is_asked_again(location, server, content):
    server.faults["GET"].append("stall")
    with RemoteReader(location, retry=IMPATIENT) as reader:
        np.testing.assert_array_equal(read(reader, 100, 50_000), content[100:50_100])
    assert len(server.requests) == 2


@pytest.mark.parametrize("fault", ["truncate", "no_length", "half_then_stall"])
def test_what_came_before_a_break_is_not_asked_for_again(location, server, content, fault):
    server.faults["GET"].append(fault)
    with RemoteReader(location, retry=IMPATIENT) as reader:
        np.testing.assert_array_equal(read(reader, 0, 1000), content[:1000])
    assert [part for _, _, part in server.requests] == ["bytes=0-999", "bytes=500-999"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("503", "HTTP 503 Service Unavailable"),
        ("reset", "Connection reset|ServerDisconnected"),
        ("stall", "the server stalled"),
    ],
)
def test_what_does_not_pass_is_given_up(location, server, fault, reason):
    server.faults["GET"].extend([fault] * 100)
    with (
        RemoteReader(location, retry=IMPATIENT) as reader,
        pytest.raises(ReadError, match=rf"x.bin, byte 7: reading failed 4 times; .*({reason})"),
    ):
        read(reader, 7, 1000)
    assert len(server.requests) >= 4  # aiohttp itself may try a reset connection once more


def test_a_server_that_always_cuts_off_is_given_up(reader, server):
    server.faults["GET"].extend(["truncate"] * 100)
    with pytest.raises(ReadError, match="reading failed 4 times; the last time: "):
        read(reader, 0, 100_000)


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        ("404", MissingFileError, "there is no such file .HTTP 404.. Check the URL"),
        ("410", MissingFileError, "there is no such file"),
        ("403", AccessError, "refuses to give it .HTTP 403.. Pass credentials"),
        ("401", AccessError, "refuses to give it"),
        ("416", FileChangedError, "has shrunk since it was listed"),
        ("400", DataError, "the server answered HTTP 400 Bad Request"),
    ],
)
def test_what_is_final_is_not_tried_again(reader, server, status, kind, message):
    server.faults["GET"].append(status)
    with pytest.raises(kind, match=message):
        read(reader, 0, 1000)
    assert len(server.requests) == 1


def test_a_server_that_ignores_ranges_is_found_out(reader, server):
    server.faults["GET"].append("ignore_range")
    with pytest.raises(DataError, match=r"ignores Range requests, .* Download the file first"):
        read(reader, 5, 1000)
    server.faults["GET"].append("ignore_range")
    with pytest.raises(DataError, match="ignores Range requests"):
        read(reader, 0, 1000)
    assert len(server.requests) == 2


def test_a_server_that_ignores_ranges_may_give_the_whole_file(reader, server, content):
    server.faults["GET"].append("ignore_range")
    np.testing.assert_array_equal(read(reader, 0, SIZE), content)


def test_a_server_that_compresses_unasked_is_found_out(reader, server):
    server.faults["GET"].append("gzip")
    with pytest.raises(DataError, match="sends it compressed, unasked"):
        read(reader, 0, 1000)


def test_a_file_that_was_replaced_is_found_out(reader, server):
    server.etag = '"2"'
    with pytest.raises(FileChangedError, match=r"was replaced on the server. Build the dataset"):
        read(reader, 0, 1000)
    with pytest.raises(FileChangedError, match="was replaced"):
        reader.check_unchanged()


def test_a_file_of_another_size_is_found_out(reader, server):
    server.files["/x.bin"] += b"more"
    with pytest.raises(FileChangedError, match=f"had {SIZE} bytes and has {SIZE + 4} now"):
        read(reader, 0, 1000)


def test_past_the_end_is_an_error_without_a_request(reader, server):
    with pytest.raises(DataError, match=f"byte {SIZE - 5}: wanted 6 bytes"):
        read(reader, SIZE - 5, 6)
    assert not server.requests


def test_near_ranges_take_one_request_and_far_ones_run_at_once(server, content):
    server.files["/far.bin"] = np.resize(content, 3_000_000).tobytes()
    location = Location(server.url("/far.bin"), 3_000_000)
    offsets = [2_500_000, 0, 100, 1000, 1_500_000]
    ranges = [Range(offset, np.zeros(100, np.uint8)) for offset in offsets]
    with RemoteReader(location, retry=QUICK) as reader:
        reader.read_ranges(ranges)
    for one in ranges:
        expected = np.resize(content, 3_000_000)[one.offset : one.offset + 100]
        np.testing.assert_array_equal(one.buffer, expected)
    assert sorted(part for _, _, part in server.requests) == [
        "bytes=0-1099",
        "bytes=1500000-1500099",
        "bytes=2500000-2500099",
    ]


def test_large_reads_are_split_and_each_part_is_tried_again(server, content):
    whole = np.resize(content, 2 * MAX_REQUEST + 1000)
    server.files["/big.bin"] = whole.tobytes()
    server.faults["GET"].extend(["503", "truncate", "reset"])
    with RemoteReader(Location(server.url("/big.bin"), whole.size), retry=QUICK) as reader:
        np.testing.assert_array_equal(read(reader, 0, whole.size), whole)


def test_many_threads_share_a_reader(location, server, content):
    server.faults["GET"].extend(["503", "", "reset", "", "truncate"] * 4)

    def check(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(10):
            nbytes = int(rng.integers(1, 30_000))
            offset = int(rng.integers(0, SIZE - nbytes))
            np.testing.assert_array_equal(
                read(reader, offset, nbytes), content[offset : offset + nbytes]
            )

    with RemoteReader(location, retry=PERSISTENT) as reader, ThreadPoolExecutor(8) as pool:
        list(pool.map(check, range(8)))


def test_storage_options_reach_the_server(server, content):
    options = {"headers": {"Authorization": "Bearer 1"}}
    seen = []
    plain = server.RequestHandlerClass.do_GET

    class Handler(server.RequestHandlerClass):
        def do_GET(self):  # noqa: N802  the name that http.server wants
            seen.append((self.headers["Authorization"], self.headers["Accept-Encoding"]))
            plain(self)

    server.RequestHandlerClass = Handler
    location = Location(server.url("/x.bin"), SIZE, storage_options=options)
    with open_reader(location) as reader:
        read(reader, 0, 10)
    assert seen == [("Bearer 1", "identity")]


def test_secrets_in_a_url_stay_out_of_messages(server, content):
    url = server.url("/gone.bin?signature=secret")
    with pytest.raises(MissingFileError) as caught:
        expand(url)
    assert "secret" not in str(caught.value)
    assert "gone.bin?..." in str(caught.value)
    (found,) = expand(server.url("/x.bin?signature=secret"))
    assert ("HEAD", "/x.bin?signature=secret", None) in server.requests
    assert found.name == "x.bin"


@pytest.mark.parametrize("status", ["405", "501", "403"])
def test_a_server_without_head_is_asked_for_a_byte(server, content, status):
    server.faults["HEAD"].append(status)
    (found,) = expand(server.url("/x.bin"))
    assert found.size == SIZE


def test_a_server_that_does_not_say_the_size_is_an_error(server, content):
    server.faults["HEAD"].append("no_length")
    server.faults["GET"].append("ignore_range")
    with pytest.raises(DataError, match="the server does not say how large it is"):
        expand(server.url("/x.bin"))


def test_listing_tries_again(server, content):
    server.faults["HEAD"].extend(["503", "reset"])
    (found,) = expand(server.url("/x.bin"))
    assert found.size == SIZE


def test_what_does_not_exist_is_said_at_once(server):
    with pytest.raises(MissingFileError, match=r"there is no such file .HTTP 404."):
        expand(server.url("/none.npy"))
    assert len(server.requests) == 1


def test_a_page_of_links_can_be_globbed(server):
    server.files["/data/"] = server.files["/data"] = (
        b'<a href="b.npy">b</a> <a href="a.npy">a</a> <a href="c.txt">c</a>'
        b'<a href="?C=N;O=D">Name</a> <a href="deep/">deep</a> <a href="/">up</a>'
    )
    for name in ("a.npy", "b.npy", "c.txt"):
        server.files[f"/data/{name}"] = name.encode()
    assert [one.name for one in expand(server.url("/data/*.npy"))] == ["a.npy", "b.npy"]
    found = expand(server.url("/data/"), suffixes=(".npy",))
    assert [(one.name, one.size) for one in found] == [("a.npy", 5), ("b.npy", 5)]
    assert [one.name for one in expand(server.url("/data/"))] == ["a.npy", "b.npy", "c.txt"]


def test_nobody_listening_is_an_error(server):
    free = server.url("/x").replace(str(server.server_address[1]), "9")  # the discard port
    with (
        RemoteReader(Location(free, 100), retry=QUICK) as reader,
        pytest.raises(ReadError, match=r"reading failed 4 times; .*Cannot connect"),
    ):
        read(reader, 0, 10)


def test_a_reader_pickles_and_connects_again(reader, content):
    read(reader, 0, 10)
    with pickle.loads(pickle.dumps(reader)) as again:
        np.testing.assert_array_equal(read(again, 5, 10), content[5:15])


def test_nothing_is_left_after_the_last_reader_closes(server, content):
    location = Location(server.url("/x.bin"), SIZE)
    first, second = RemoteReader(location), RemoteReader(location)
    assert not our_threads(), "nothing is opened before the first read"
    read(first, 0, 10)
    read(second, 0, 10)
    assert len(our_threads()) == 1
    first.close()
    first.close()
    read(second, 0, 10)
    second.close()
    assert not our_threads()
    assert not sessions._sessions
    with pytest.raises(ValueError, match=r"the reader of .*x.bin is closed"):
        read(second, 0, 10)


def our_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("penstock")]


def test_a_forgotten_reader_closes_itself(server, content):
    reader = RemoteReader(Location(server.url("/x.bin"), SIZE))
    read(reader, 0, 10)
    del reader
    assert not our_threads()


def test_closing_from_another_thread_stops_a_stalled_read(server, content):
    server.faults["GET"].append("stall")
    location = Location(server.url("/x.bin"), SIZE)
    reader = RemoteReader(location, retry=RetryPolicy(stall_timeout=60))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read, reader, 0, 10)
        while not server.requests:
            assert not reading.done()
        reader.close()
        with pytest.raises(ValueError, match=r"the reader of .*x.bin was closed while it read"):
            reading.result(timeout=30)
    assert not our_threads()


def test_ctrl_c_ends_a_stalled_read_at_once(server, content):
    server.faults["GET"].append("stall")
    location = Location(server.url("/x.bin"), SIZE)
    main = threading.main_thread().ident

    def interrupt():
        while not server.requests:
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    with RemoteReader(location, retry=RetryPolicy(stall_timeout=60)) as reader:
        thread.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            read(reader, 0, 10)
        assert time.monotonic() - began < 20
        np.testing.assert_array_equal(read(reader, 0, 10), content[:10])
    thread.join()


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX, if an earlier test started it
def test_a_forked_child_connects_for_itself(reader, content):
    read(reader, 0, 10)
    pid = os.fork()
    if pid == 0:
        try:
            ok = (read(reader, 100, 1000) == content[100:1100]).all()
            reader.close()
            os._exit(0 if ok else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    np.testing.assert_array_equal(read(reader, 5, 10), content[5:15])


@pytest.mark.parametrize(
    "url", ["memory://penstock/x-{0..3}.bin", "memory://penstock/x-{0..3}*.bin"]
)
def test_braces_in_a_url_are_told_with_the_glob(url):
    cure = r"Braces are no pattern: write 'memory://penstock/x-\*.bin', or a list of the files"
    with pytest.raises(MissingFileError, match=cure):
        expand(url)


def test_files_in_fsspec_memory_are_read(content):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/penstock/x.bin", content.tobytes())
    try:
        (found,) = expand("memory://penstock/x.bin")
        with open_reader(found) as reader:
            np.testing.assert_array_equal(read(reader, 7, 1000), content[7:1007])
            ranges = [Range(offset, np.zeros(5, np.uint8)) for offset in (0, 9, 200_000)]
            reader.read_ranges(ranges)
            for one in ranges:
                expected = content[one.offset : one.offset + 5]
                np.testing.assert_array_equal(one.buffer, expected)
            memory.pipe("/penstock/x.bin", b"short")
            with pytest.raises(FileChangedError, match="was replaced since it was listed"):
                reader.check_unchanged()
        with (
            RemoteReader(found, retry=QUICK) as reader,
            pytest.raises(ReadError, match="failed 4 times; the last time: the answer ended after"),
        ):
            read(reader, 0, 1000)
        memory.rm_file("/penstock/x.bin")
        with open_reader(found) as reader, pytest.raises(MissingFileError, match="no such file"):
            read(reader, 0, 1000)
    finally:
        memory.store.pop("/penstock/x.bin", None)


def test_a_file_in_an_archive_behind_a_url_is_read(tmp_path, content):
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("in/x.bin", content.tobytes())
    url = f"zip://in/x.bin::file://{tmp_path}/a.zip"
    (found,) = expand(url)
    assert (found.size, found.name) == (SIZE, "x.bin")
    with open_reader(found) as reader:
        np.testing.assert_array_equal(read(reader, 7, 1000), content[7:1007])
