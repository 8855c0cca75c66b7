"""A URL that a user gives, and what is refused without showing what it holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.errors import InputError
from decodescope.attach.servers.address import Address, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://gpu7:8000", Address("http", "gpu7", 8000)),
        ("gpu7:8000", Address("http", "gpu7", 8000)),
        (":8000", Address("http", "127.0.0.1", 8000)),
        ("http://:8000/v1/", Address("http", "127.0.0.1", 8000)),
        ("https://llm.example/decode/v1", Address("https", "llm.example", 443, "/decode")),
        ("HTTP://[::1]:30000/", Address("http", "::1", 30000)),
    ],
)
def test_a_url_names_a_server(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(address.url) == address


@pytest.mark.parametrize(
    ("text", "is_local"),
    [("localhost:1", True), ("127.9.9.9:1", True), ("[::1]:1", True), ("10.0.0.1:1", False)],
)
def test_only_loopback_is_this_machine(text: str, is_local: bool) -> None:
    assert parse_address(text).is_local is is_local


@pytest.mark.parametrize(
    "text",
    [
        "http://user:hunter2@gpu7:8000",
        "hunter2@gpu7",
        "http://:hunter2@h",
        "ftp://x:hunter2@h",
        "https://gpu7:8000/v1?api_key=hunter2",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_shown(text: str) -> None:
    with pytest.raises(InputError, match="in a file or in an environment variable") as caught:
        parse_address(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["http://h:1x?key=hunter2", "http://h/#tok=hunter2", "http://h:1x?key=a@hunter2"]
)
def test_what_else_is_wrong_in_a_url_shows_no_secret_either(text: str) -> None:
    with pytest.raises(InputError, match="is no URL of a server") as caught:
        parse_address(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://h:port",
        "http://h:99999",
        "unix:///run/x",
        "http://[::1",
        "h/a b",
        "h#f",
    ],
)
def test_what_is_no_url_is_said(text: str) -> None:
    if text == "":
        assert parse_address(text) == Address("http", "127.0.0.1", 80)
        return
    with pytest.raises(InputError, match="is no URL of a server"):
        parse_address(text)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_one_line(text: str) -> None:
    try:
        url = parse_address(text).url
    except InputError as error:
        url = str(error)
    assert url.isprintable()
