"""Who is answered, with what, and who is not: by plain requests, without a browser."""

import http.client
import json
import re
import socket

import pytest

from live.run_files import written
from penstock.live.server import PageServer


@pytest.fixture(scope="module")
def server():
    one = PageServer()
    one.start()
    yield one
    one.close()


def ask(server, path, *, method="GET", host=None, **headers):
    """Return the answer, and its text."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for one in [f"127.0.0.1:{server.port}"] if host is None else host:
            connection.putheader("Host", one)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer, answer.read().decode()
    finally:
        connection.close()


def say(server, data):
    """Return what is answered to bytes that are no good request."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()


def test_it_listens_on_this_machine_only_and_its_address_has_a_token_nobody_guesses(server):
    assert server._http.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.port}/{server.token}/"
    assert len(server.token) >= 32
    other = PageServer()
    other.close()
    assert other.token != server.token


def test_the_page_is_whole_and_fetches_nothing_from_elsewhere(server):
    answer, page = ask(server, f"/{server.token}/")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    names = re.findall(r'(?:href|src)="([^"]*)"', page)
    assert {"page.css", "colors.css", "page.js", "icon.svg"} == set(names)
    texts = [page]
    for name in {*names, "draw.js"}:
        answer, text = ask(server, f"/{server.token}/{name}")
        assert answer.status == 200, name
        assert text
        texts.append(text)
    # The name space of SVG is a name, and no address.
    addresses = set(re.findall(r"https?://[^\"' ]*|//[a-z]+\.[^\"' ]*", "".join(texts)))
    assert addresses <= {"http://www.w3.org/2000/svg"}


def test_every_answer_forbids_what_a_page_of_somebody_else_could_do_with_it(server):
    for path in (f"/{server.token}/", f"/{server.token}/runs", f"/{server.token}/none", "/"):
        answer, _ = ask(server, path)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert not [name for name in answer.headers if name.startswith("Access-Control")]
        assert answer.headers["Server"] == "penstock"


def test_who_does_not_know_the_token_is_refused(server):
    token = server.token
    wrong = ["", token[:-1], token + "x", token.swapcase(), "%", "%00", "é", "..", f"..%2f{token}"]
    for path in [
        "/",
        "/runs",
        "/page.js",
        "//",
        *(f"/{one}/runs" for one in wrong if one.isascii()),
    ]:
        answer, text = ask(server, path)
        assert answer.status == 403, path
        assert text == (
            "penstock: the address has no token, or a wrong one: take it from where it was printed.\n"
        )


@pytest.mark.parametrize(
    "host",
    [
        ["attacker.example"],
        ["attacker.example:{port}"],
        ["127.0.0.1"],
        ["127.0.0.1:1"],
        ["localhost.attacker.example:{port}"],
        [],
        ["127.0.0.1:{port}", "attacker.example"],
    ],
)
def test_who_takes_this_for_another_host_is_refused_with_the_token_too(server, host):
    hosts = [one.format(port=server.port) for one in host]
    answer, text = ask(server, f"/{server.token}/runs", host=hosts)
    assert (answer.status, text) == (421, "penstock: this is 127.0.0.1 and no other host.\n")


def test_it_is_known_as_localhost_too(server):
    answer, _ = ask(server, f"/{server.token}/runs", host=[f"localhost:{server.port}"])
    assert answer.status == 200


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE", "DANCE"]
)
def test_nothing_but_get_is_answered(server, method):
    answer, text = ask(server, f"/{server.token}/runs", method=method)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET"
    assert text == ("" if method == "HEAD" else "penstock: this page is only read: GET.\n")


def test_what_is_not_there_is_not_there(server):
    for path in ("none", "page.py", "../server.py", "..%2fserver.py", "page.js/", "runs/1"):
        answer, text = ask(server, f"/{server.token}/{path}")
        assert (answer.status, text) == (404, "penstock: there is nothing here.\n"), path


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"nonsense\r\n\r\n", "400"),
        (b"GET / HTTP/9.9\r\n\r\n", "505"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", "414"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", "431"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", "400"),
    ],
)
def test_a_bad_request_gets_a_line_and_no_traceback(server, data, code, capfd):
    answer = say(server, data)
    assert code in answer.partition("\n")[0] or answer.startswith("penstock: ")
    assert "Traceback" not in answer
    assert len(answer) < 1000
    assert ask(server, f"/{server.token}/")[0].status == 200
    assert capfd.readouterr() == ("", "")


def test_runs_are_told_as_json_and_the_one_that_is_asked_for_whole(server):
    assert json.loads(ask(server, f"/{server.token}/runs")[1])["run"] is None
    first, second = written(1), written(2)
    found = json.loads(ask(server, f"/{server.token}/runs?run={second}")[1])
    assert [one["name"] for one in found["runs"]] == [first, second]
    assert found["run"]["name"] == second


def test_a_server_of_one_run_tells_of_no_other():
    first, _ = written(1), written(2)
    one = PageServer(only=first)
    one.start()
    try:
        found = json.loads(ask(one, f"/{one.token}/runs?run=x")[1])
        assert [run["name"] for run in found["runs"]] == [first]
    finally:
        one.close()


def test_a_connection_that_says_nothing_keeps_nobody_waiting_and_ends_with_the_server():
    server = PageServer()
    server.start()
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
    assert ask(server, f"/{server.token}/")[0].status == 200
    server.close()
    assert [one.recv(1) for one in silent] == [b""] * 3
    for one in silent:
        one.close()
    with pytest.raises(ConnectionRefusedError):
        ask(server, "/")


def test_more_connections_than_anybody_needs_are_closed_at_once(server):
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
    try:
        silent[-1].settimeout(30)
        assert silent[-1].recv(1) == b""
    finally:
        for one in silent:
            one.close()


def test_a_server_is_opened_again_under_the_same_address():
    first = PageServer()
    first.close()
    again = PageServer.again(first.url)
    again.close()
    assert again.url == first.url


def test_a_port_that_is_taken_is_told_or_another_is_taken_by_who_comes_back(server):
    with pytest.raises(OSError, match="in use"):
        PageServer(port=server.port)
    other = PageServer.again(server.url)
    other.close()
    assert other.token != server.token  # Who has the port now is told the old one by the page.
    assert other.port != server.port
