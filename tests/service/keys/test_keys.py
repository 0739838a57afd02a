import hashlib
import hmac
import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from service.keys.cli import main
from service.keys.keys import DeniedError, Key, Keyring, KeysError, Scope, describe, load_keys, make, read_keys
from service.settings import Settings

SEARCH, SHOP, OPS = make("search", ["rank", "documents"]), make("shop", ["rank"], "shelf"), make("ops", ["admin", "metrics"])
GOOD = json.loads(SEARCH.entry)
ENTRIES = "\n".join(new.entry for new in (SEARCH, SHOP, OPS))


@pytest.fixture
def keyring() -> Keyring:
    return Keyring(list(read_keys(ENTRIES, "here")))


def test_a_key_is_random_and_its_entry_holds_its_hash_alone() -> None:
    assert SEARCH.secret != make("search", ["rank", "documents"]).secret
    assert len(SEARCH.secret) >= 43  # 256 bits
    assert SEARCH.secret not in SEARCH.entry
    digest = hashlib.sha256(SEARCH.secret.encode()).hexdigest()
    assert json.loads(SEARCH.entry) == {"name": "search", "sha256": digest, "scopes": ["documents", "rank"]}


@pytest.mark.parametrize("header", ["Bearer {}", "bearer {}", "BEARER  {} ", "{}"])
def test_a_key_is_taken_with_bearer_before_it_or_bare(keyring: Keyring, header: str) -> None:
    assert keyring.admit(header.format(SEARCH.secret)).name == "search"


NO_KEYS = {
    "none": None,
    "empty": "",
    "Bearer": "Bearer",
    "Bearer and a blank": "Bearer ",
    "any": "any",
    "Bearer any": "Bearer any",
    "Basic": f"Basic {SEARCH.secret}",
    "one letter more": f"Bearer {SEARCH.secret}x",
    "not ASCII": "Bearer \xe9\xff",
    "the hash, which who reads the configuration has": f"Bearer {GOOD['sha256']}",
}


@pytest.mark.parametrize("header", NO_KEYS.values(), ids=NO_KEYS)
def test_whatever_is_no_key_is_401_and_not_repeated(keyring: Keyring, header: str | None) -> None:
    with pytest.raises(DeniedError) as caught:
        keyring.admit(header)
    missing = not (header or "").removeprefix("Bearer").strip()
    assert (caught.value.status, caught.value.why) == (401, "no_key" if missing else "unknown_key")
    assert "any" not in caught.value.problem.replace("any ", "")
    assert SEARCH.secret not in caught.value.problem


def test_a_key_of_other_bytes_than_ascii_is_hashed_as_it_is_sent() -> None:
    entry = {"name": "odd", "sha256": hashlib.sha256("schlüssel".encode()).hexdigest(), "scopes": ["rank"]}
    sent = "schlüssel".encode().decode("latin-1")  # as headers are read
    assert Keyring([Key.model_validate(entry)]).admit(sent).name == "odd"


def test_every_hash_is_compared_in_constant_time(keyring: Keyring, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: (compared.append(b), compare(a, b))[1])
    for secret in (SEARCH.secret, OPS.secret, "none"):
        compared.clear()
        keyring.find(secret.encode())
        assert len(compared) == len(keyring.keys)


def test_lines_with_comments_and_a_json_list_say_the_same() -> None:
    lines = list(read_keys(f"# of the shop\n\n{ENTRIES}\r\n", "here"))
    listed = json.dumps([json.loads(entry) for entry in ENTRIES.splitlines()], indent=1)
    assert lines == list(read_keys(listed, "here"))
    assert [(key.name, key.owns) for key in lines] == [("search", "search"), ("shop", "shelf"), ("ops", "ops")]


WRONG = {
    "not JSON": (f"{SEARCH.secret}", "here, line 1: is not JSON"),
    "a list that is cut": ("[{", "here: is not JSON"),
    "no object": ("7", "here, line 1: "),
    "a name with a colon": (json.dumps(GOOD | {"name": "a:b"}), "here, line 1: name: "),
    "a namespace with a colon": (json.dumps(GOOD | {"namespace": "a:b"}), "here, line 1: namespace: "),
    "a long name": (json.dumps(GOOD | {"name": "a" * 65}), "here, line 1: name: "),
    "the key in place of its hash": (json.dumps(GOOD | {"sha256": SEARCH.secret}), "here, line 1: sha256: "),
    "the hash of nothing": (json.dumps(GOOD | {"sha256": hashlib.sha256().hexdigest()}), "here, line 1: sha256: "),
    "an unknown scope": (SHOP.entry + "\n" + json.dumps(GOOD | {"scopes": ["all"]}), "here, line 2: scopes.0: "),
    "no scope": (json.dumps(GOOD | {"scopes": []}), "here, line 1: scopes: "),
    "an unknown field": (json.dumps([GOOD, GOOD | {"key": SEARCH.secret}]), "here, entry 2: key: "),
}


@pytest.mark.parametrize(("text", "problem"), WRONG.values(), ids=WRONG)
def test_a_problem_is_one_line_that_repeats_no_key(text: str, problem: str) -> None:
    with pytest.raises(KeysError) as caught:
        list(read_keys(text, "here"))
    message = str(caught.value)
    assert message.startswith(problem)
    assert "\n" not in message
    assert SEARCH.secret not in message


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ([], "holds no keys"),
        ([GOOD, GOOD | {"sha256": "0" * 64}], "two entries have the name 'search'"),
        ([GOOD, GOOD | {"name": "b", "sha256": GOOD["sha256"].upper()}], "two entries have the sha256 of the same key"),
    ],
)
def test_keys_that_cannot_be_distinguished_are_refused(keys: list[object], problem: str) -> None:
    with pytest.raises(KeysError, match=problem):
        Keyring([Key.model_validate(key) for key in keys])


def test_keys_come_from_a_setting_and_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.jsonl"
    file.write_text(f"\ufeff{SHOP.entry}\r\n\r\n{OPS.entry}\r\n", "utf-8")  # as an editor on Windows leaves it
    assert load_keys(Settings()) is None
    keyring = load_keys(Settings(api_keys=SecretStr(SEARCH.entry), api_keys_file=file))
    assert keyring is not None
    assert [key.name for key in keyring.keys] == ["search", "shop", "ops"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", r"keys\.jsonl: holds no keys"),
        (b"\n# all of them have left\n", r"keys\.jsonl: holds no keys"),
        (b"\xff\xfe", "not UTF-8"),
        (None, "cannot be read as a file of API keys"),
    ],
)
def test_a_file_without_keys_opens_nothing(tmp_path: Path, content: bytes | None, problem: str) -> None:
    file = tmp_path / "keys.jsonl"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(KeysError, match=problem):
        load_keys(Settings(api_keys_file=file))


def test_a_folder_and_a_setting_without_keys_open_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="cannot be read as a file of API keys"):
        load_keys(Settings(api_keys_file=tmp_path))
    with pytest.raises(KeysError, match="api_keys: holds no keys"):
        load_keys(Settings(api_keys=SecretStr(" ")))


def test_the_log_names_the_keys_and_their_scopes(keyring: Keyring) -> None:
    assert describe(None).startswith("no API keys")
    assert describe(keyring) == "API keys: search (documents, rank), shop (rank), ops (admin, metrics)"


def test_keys_are_in_no_repr() -> None:
    settings = Settings(api_keys=SecretStr(SEARCH.entry), store="redis://user:hunter2@example/0")
    shown = f"{settings!r} {settings} {list(read_keys(ENTRIES, 'here'))!r}"
    assert GOOD["sha256"] not in shown
    assert "hunter2" not in shown


def test_the_entry_that_is_printed_admits_the_key_that_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "--scopes", "rank, documents", "--namespace", "shelf"]) == 0
    shown = capsys.readouterr()
    secret = shown.err.split()[-1]
    assert secret not in shown.out
    key = Keyring(list(read_keys(shown.out, "here"))).admit(f"Bearer {secret}")
    assert (key.name, key.owns, key.scopes) == ("search", "shelf", {Scope.RANK, Scope.DOCUMENTS})


@pytest.mark.parametrize(
    "arguments", [["a:b"], ["search", "--scopes", "all"], ["search", "--scopes", ""], ["a", "--namespace", ":"]]
)
def test_what_is_no_key_is_refused_in_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
