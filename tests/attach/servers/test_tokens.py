"""Tokens come from a file or the environment, and appear nowhere."""

from pathlib import Path

import pytest

from decodescope.analyzer.errors import InputError
from decodescope.attach.servers.address import parse_address
from decodescope.attach.servers.client import ServerClient
from decodescope.attach.servers.tokens import Token, read_token


def test_a_file_and_a_variable_hold_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("  sk-abc\n")
    monkeypatch.setenv("SERVER_KEY", "sk-abc")
    from_file = read_token(tmp_path / "token", None)
    assert from_file == read_token(None, "SERVER_KEY") == Token("Bearer sk-abc")


def test_no_repr_shows_the_token() -> None:
    client = ServerClient(parse_address(":1"), Token("Bearer sk-abc"))
    assert "sk-abc" not in repr(client) + str(client.token) + f"{client}"


@pytest.mark.parametrize("echo", ["sk/a+b", r"sk\/a+b", r"\u0073k\u002fa\u002Bb"])
def test_an_answer_is_read_without_the_token_however_json_writes_it(echo: str) -> None:
    answer = f'{{"error":"Bearer {echo}"}}'.encode()
    assert Token("Bearer sk/a+b").taken_from(answer).decode() == '{"error":"Bearer …"}'


@pytest.mark.parametrize("text", ["", "\n", "two words", "a\r\nX-Evil: 1", "sk-é", "a\x00b"])
def test_what_is_no_token_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(InputError, match="holds no token") as caught:
        read_token(tmp_path / "token", None)
    assert not text.strip() or text not in str(caught.value)


def test_a_missing_file_and_variable_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SERVER_KEY", raising=False)
    with pytest.raises(InputError, match=r"nowhere: the token cannot be read \(No such file"):
        read_token(tmp_path / "nowhere", None)
    with pytest.raises(InputError, match="SERVER_KEY: this environment variable is not set"):
        read_token(None, "SERVER_KEY")
