from __future__ import annotations

from pathlib import Path

import pytest

from quintain.endpoints.profiles import find_profile, read_profiles
from quintain.errors import InvalidInput, NotFound, QuintainError, Refused

GOOD = """
[judge]
protocol = "openai"
base_url = "https://api.example.com/v1"
model = "m"
api_key_env = "EXAMPLE_KEY"
input_usd_per_mtok = 3
[local]
protocol = "anthropic"
base_url = "http://127.0.0.1:8080"
model = "m"
extra = {top_k = 1}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "endpoints.toml"
    path.write_text(text, encoding="utf-8")
    return path


def at(url: str) -> str:
    """A profile of this address."""
    return f'[judge]\nprotocol = "openai"\nbase_url = "{url}"\nmodel = "m"\n'


def test_profiles_are_read_by_name_and_a_missing_file_holds_none(tmp_path: Path) -> None:
    assert read_profiles(tmp_path / "endpoints.toml") == {}
    with pytest.raises(NotFound, match=r"none yet.*\[NAME\] with protocol"):
        find_profile(tmp_path / "endpoints.toml", "judge")
    found = read_profiles(written(tmp_path, GOOD))
    assert list(found) == ["judge", "local"]
    assert (found["judge"].api_key_env, found["judge"].input_usd_per_mtok) == ("EXAMPLE_KEY", 3)
    with pytest.raises(NotFound, match=r"did you mean 'judge'.*judge, local"):
        find_profile(tmp_path / "endpoints.toml", "jugde")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("modell = 1", "model"),
        ('protocol = "grpc"', "protocol"),
        ("concurrency = 0", "concurrency"),
        ('base_url = "ftp://x/y"', "must be http"),
        ('base_url = "https://x/y?key=1"', "must be http"),
        ('base_url = "https://"', "must be http"),
        ('base_url = "https://host:port/"', "must be http"),
        ('base_url = "not a url"', "must be http"),
        ("x =", "expected TOML in UTF-8"),
    ],
)
def test_a_wrong_field_is_told_with_its_profile(tmp_path: Path, line: str, says: str) -> None:
    fields = ['protocol = "openai"', 'base_url = "https://h/v1"', 'model = "m"']
    kept = [field for field in fields if field.split()[0] != line.split()[0]]
    path = written(tmp_path, "\n".join(["[judge]", *kept, line]))
    with pytest.raises(InvalidInput, match=says):
        read_profiles(path)


@pytest.mark.parametrize(
    "text",
    [
        at("https://h/v1") + 'api_key = "sk-live-12345"',
        at("https://h/v1") + 'api_key_env = "sk-live-12345"',
        at("https://h/v1") + 'extra = {api_key = "sk-live-12345"}',
        at("https://h/v1") + 'headers = {Authorization = "Bearer sk-live-12345"}',
        at("https://me:sk-live-12345@h/v1"),
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    remedy = "user name or password" if "@" in text else "environment variable"
    with pytest.raises(Refused, match=remedy) as raised:
        read_profiles(written(tmp_path, text))
    assert "12345" not in str(raised.value)


def test_plain_http_goes_to_this_machine_alone_unless_the_operator_allows_it(tmp_path: Path) -> None:
    for host in ("10.0.0.5:8000", "example.com", "localhost.example.com", "127.0.0.1.example.com"):
        with pytest.raises(Refused, match="allow_http"):
            read_profiles(written(tmp_path, at(f"http://{host}/v1")))
        assert read_profiles(written(tmp_path, at(f"http://{host}/v1") + "allow_http = true\n"))["judge"].allow_http
    for host in ("localhost:1", "127.0.0.1", "127.8.9.1:80", "[::1]:8080"):
        assert read_profiles(written(tmp_path, at(f"http://{host}/v1")))


def test_what_is_no_text_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.toml"
    path.write_bytes(b"\xff\xfe[judge]")
    with pytest.raises(QuintainError, match="UTF-8"):
        read_profiles(path)
    path.write_text("judge = 1", encoding="utf-8")
    with pytest.raises(InvalidInput, match="outside of a profile"):
        read_profiles(path)
