"""Embeddings: where they come from, what is stored of them, and that nothing goes anywhere without a yes."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from crdt import clock
from fleet import RELEASED_MS
from fleet.model import edits
from fleet.model.line import Column, Line, encode
from fleet.recall.search import search
from fleet.store import config, consent, semantic
from fleet.store.semantic import Embeddings
from fleet.store.workspace import Workspace, World

ROOT = Path(__file__).resolve().parents[2]
ME = "velma.09ab12cd"
NOW_MS = RELEASED_MS + 40 * 86_400_000
WORDS = ("renew", "rotate", "secret", "credential", "queue", "log")
MEANINGS = {"renew": 0, "rotate": 0, "secret": 1, "credential": 1, "queue": 2, "log": 3}


def lesson(number: int, text: str) -> Line:
    column = Column(add=clock.pack(NOW_MS - 1_000_000 + number), n={"seen": 1}, first={"text": text})
    return Line(id=f"p-{number:016x}", w={ME: column})


def workspace_in(root: Path, *lessons: Line, toml: str = "") -> Workspace:
    (root / config.FILE_NAME).write_text(toml)
    (root / ".fleet").mkdir(exist_ok=True)
    edition = root / "clan-learnings/patterns.jsonl"
    edition.parent.mkdir(exist_ok=True)
    edition.write_bytes(b"".join(encode(line) + b"\n" for line in lessons))
    return Workspace(root, World(wall_ms=lambda: NOW_MS, machine=lambda: "machine", durable=False))


def append(root: Path, *lines: Line) -> None:
    shard = root / f"clan-learnings/patterns.d/{ME}.jsonl"
    shard.parent.mkdir(exist_ok=True)
    with shard.open("ab") as file:
        file.write(b"".join(encode(line) + b"\n" for line in lines))


LESSONS = (lesson(1, "Rotate a credential at once"), lesson(2, "Drain the queue"), lesson(3, "Log to a file"))


@pytest.fixture
def libraries():
    """The tests of what is computed need the libraries of the extra."""
    for name in semantic.LIBRARIES:
        pytest.importorskip(name)


@pytest.fixture
def model(libraries, tmp_path):
    """A tiny model2vec folder in which words that mean the same share a direction."""
    import numpy
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path / "model"
    folder.mkdir()
    table = numpy.zeros((len(WORDS) + 1, 4), dtype="float32")
    for number, word in enumerate(WORDS, 1):
        table[number, MEANINGS[word]] = 1
    save_file({"embeddings": table}, folder / "model.safetensors")
    vocabulary = {"[UNK]": 0} | {word: number for number, word in enumerate(WORDS, 1)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.normalizer = __import__("tokenizers").normalizers.Lowercase()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def with_model(folder: Path) -> str:
    return f'[semantic]\nmodel = "{folder}"\n'


def stored(workspace: Workspace) -> list[str]:
    rows = workspace.db.database.open().execute("SELECT id FROM vector ORDER BY id")
    return [row[0] for row in rows]


def test_without_the_libraries_there_is_no_source_and_nothing_fails(tmp_path, monkeypatch):
    workspace = workspace_in(tmp_path, *LESSONS)
    monkeypatch.setattr(semantic, "find_spec", lambda _: None)
    assert Embeddings(workspace).source() is None
    assert Embeddings(workspace).embed_new() == 0
    assert Embeddings(workspace).nearest("renew secrets", 3) == []


def test_one_key_turns_it_off(tmp_path, model):
    workspace = workspace_in(tmp_path, *LESSONS, toml=with_model(model) + "off = true\n")
    assert Embeddings(workspace).source() is None
    assert Embeddings(workspace).embed_new() == 0


def test_importing_it_imports_no_library_of_the_extra_and_no_network():
    code = "import sys, fleet.store.semantic\n"
    code += "print({'numpy', 'safetensors', 'tokenizers', 'urllib.request'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_what_means_the_same_is_found_without_a_common_word(tmp_path, model):
    workspace = workspace_in(tmp_path, *LESSONS, toml=with_model(model))
    assert Embeddings(workspace).nearest("renew the secret", 3) == []
    assert Embeddings(workspace).embed_new() == 3
    (found,) = Embeddings(workspace).nearest("renew the secret", 3)
    assert found[0] == LESSONS[0].id
    assert 0.5 < found[1] <= 1.001
    answer = search(workspace, "renew the secret")
    assert ([hit.id for hit in answer.hits], answer.is_near) == ([LESSONS[0].id], True)
    assert search(workspace, "xyzzy").hits == ()


def test_what_has_the_words_stays_before_what_means_the_same(tmp_path, model):
    more = lesson(4, "Renew secrets: the secret is to renew")
    workspace = workspace_in(tmp_path, *LESSONS, more, toml=with_model(model))
    Embeddings(workspace).embed_new()
    assert [hit.id for hit in search(workspace, "renew secret").hits] == [more.id, LESSONS[0].id]


def test_only_what_changed_is_embedded_and_what_is_out_is_forgotten(tmp_path, model):
    workspace = workspace_in(tmp_path, *LESSONS, toml=with_model(model))
    assert [Embeddings(workspace).embed_new(), Embeddings(workspace).embed_new()] == [3, 0]
    cut = clock.pack(NOW_MS)
    append(tmp_path, edits.set_field(LESSONS[1], "text", "Renew the log", ME, clock.pack(NOW_MS - 10), cut))
    append(tmp_path, edits.retire(LESSONS[2], ME))
    assert Embeddings(workspace).embed_new() == 1
    assert stored(workspace) == [LESSONS[0].id, LESSONS[1].id]
    assert [each for each, _ in Embeddings(workspace).nearest("log", 3)] == [LESSONS[1].id]


def test_a_large_clan_is_embedded_in_several_goes(tmp_path, model, monkeypatch):
    monkeypatch.setattr(semantic, "TEXTS_MAX", 2)
    workspace = workspace_in(tmp_path, *LESSONS, toml=with_model(model))
    assert [Embeddings(workspace).embed_new() for _ in range(3)] == [2, 1, 0]


def test_another_model_embeds_all_anew(tmp_path, model):
    import numpy
    from safetensors.numpy import save_file

    workspace = workspace_in(tmp_path, *LESSONS, toml=with_model(model))
    Embeddings(workspace).embed_new()
    save_file({"embeddings": numpy.ones((len(WORDS) + 1, 5), dtype="float32")}, model / "model.safetensors")
    assert Embeddings(workspace).nearest("log", 3) == []
    assert Embeddings(workspace).embed_new() == 3
    assert len(Embeddings(workspace).nearest("log", 3)) == 3


def test_weights_and_a_mapping_of_tokens_are_minded(tmp_path, model):
    import numpy
    from safetensors.numpy import save_file

    tensors = {
        "embeddings": numpy.eye(3, dtype="float32"),
        "mapping": numpy.array([0, 1, 1, 2, 2, 0, 0]),
        "weights": numpy.array([0, 1, 1, 5, 5, 0, 0], dtype="float32"),
    }
    save_file(tensors, model / "model.safetensors")
    workspace = workspace_in(tmp_path, *LESSONS, toml=with_model(model))
    chosen = Embeddings(workspace).source()
    renew, secret, both = chosen.load()(["renew", "secret", "rotate credential"])
    assert renew.tolist() == [0, 1, 0]
    assert secret.tolist() == [0, 0, 1]
    assert both @ secret > both @ renew > 0


def test_a_folder_that_holds_no_model_is_no_source(tmp_path, libraries):
    workspace = workspace_in(tmp_path, *LESSONS, toml=with_model(tmp_path / "nowhere"))
    assert Embeddings(workspace).source() is None


# An endpoint.


class Endpoint(BaseHTTPRequestHandler):
    """An endpoint whose answer the test chooses; it keeps what it was asked."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers.get("Authorization"), asked))
        status, answer = self.server.answer(asked)
        body = json.dumps(answer).encode()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", self.server.elsewhere)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def vector_of(text: str) -> list[float]:
    return [float(sum(MEANINGS[word] == at for word in WORDS if word in text.casefold())) for at in range(4)]


@pytest.fixture
def endpoint(libraries):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.asked, server.elsewhere = [], ""
    server.answer = lambda asked: (
        200,
        {"data": [{"index": n, "embedding": vector_of(text)} for n, text in enumerate(asked["input"])][::-1]},
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.url = f"http://127.0.0.1:{server.server_port}/v1"
    yield server
    server.shutdown()
    server.server_close()


def at_endpoint(root: Path, url: str, *lessons: Line) -> Workspace:
    return workspace_in(root, *lessons, toml=f'[semantic]\nurl = "{url}"\nurl_model = "small"\n')


def test_an_endpoint_is_asked_after_a_yes_alone(tmp_path, endpoint, monkeypatch):
    monkeypatch.setenv("FLEET_EMBEDDING_KEY", "k-123")
    secret = lesson(7, "Renew the secret ghp_" + "a1B2" * 10)
    workspace = at_endpoint(tmp_path, endpoint.url, *LESSONS, secret)
    assert Embeddings(workspace).embed_new() == 0
    assert search(workspace, "renew the secret").hits[0].id == secret.id
    assert endpoint.asked == []
    workspace.state.agree(consent.SEMANTIC, endpoint.url, clock.pack(NOW_MS))
    assert Embeddings(workspace).embed_new() == 4
    path, key, asked = endpoint.asked[0]
    assert (path, key, asked["model"]) == ("/v1/embeddings", "Bearer k-123", "small")
    assert "ghp_" not in json.dumps(endpoint.asked)
    assert [each for each, _ in Embeddings(workspace).nearest("rotate credentials", 3)] == [LESSONS[0].id, secret.id]


@pytest.mark.parametrize(
    "answer",
    [
        lambda asked: (500, {}),
        lambda asked: (200, {}),
        lambda asked: (200, []),
        lambda asked: (200, {"data": [{"embedding": [1.0]}]}),
        lambda asked: (200, {"data": [{"embedding": ["x"]} for _ in asked["input"]]}),
        lambda asked: (200, {"data": [{"embedding": [1.0] * (n + 1)} for n, _ in enumerate(asked["input"])]}),
        lambda asked: (200, {"data": [{"embedding": [float("nan")]} for _ in asked["input"]]}),
    ],
)
def test_whatever_an_endpoint_answers_search_goes_on(tmp_path, endpoint, answer):
    workspace = at_endpoint(tmp_path, endpoint.url, *LESSONS)
    workspace.state.agree(consent.SEMANTIC, endpoint.url, clock.pack(NOW_MS))
    endpoint.answer = answer
    assert Embeddings(workspace).embed_new() == 0
    assert stored(workspace) == []
    assert [hit.id for hit in search(workspace, "queue").hits] == [LESSONS[1].id]


def test_an_endpoint_that_sends_elsewhere_is_not_followed(tmp_path, endpoint):
    workspace = at_endpoint(tmp_path, endpoint.url, *LESSONS)
    workspace.state.agree(consent.SEMANTIC, endpoint.url, clock.pack(NOW_MS))
    endpoint.elsewhere, endpoint.answer = f"{endpoint.url}/elsewhere", lambda asked: (302, {})
    assert Embeddings(workspace).embed_new() == 0
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize("url", ["http://example.com/v1", "ftp://localhost/v1", "file:///etc/passwd", "https:///x y"])
def test_texts_go_to_no_address_that_is_neither_encrypted_nor_this_machine(tmp_path, libraries, url):
    workspace = at_endpoint(tmp_path, url, *LESSONS)
    workspace.state.agree(consent.SEMANTIC, url, clock.pack(NOW_MS))
    assert Embeddings(workspace).source() is None or url.startswith("https:")


def test_the_cosines_of_texts_that_nothing_is_stored_of(model, tmp_path):
    workspace = workspace_in(tmp_path, toml=with_model(model))
    found = Embeddings(workspace).cosines(["Rotate", "Renew", "Drain the queue"], [(0, 1), (0, 2)])
    assert found is not None
    assert found[0, 1] == pytest.approx(1.0)
    assert found[0, 2] < 0.5
    assert Embeddings(workspace).cosines([], []) == {}
    workspace.close()


def test_texts_of_an_agent_alone_go_to_no_endpoint_beyond_this_machine(libraries, tmp_path):
    workspace = workspace_in(tmp_path, toml='[semantic]\nurl = "https://embed.example.org/v1"\n')
    workspace.state.agree("semantic", "https://embed.example.org/v1", workspace.wall())
    assert Embeddings(workspace).source() is not None
    assert Embeddings(workspace).cosines(["Rotate", "Renew"], [(0, 1)]) is None
    workspace.close()
