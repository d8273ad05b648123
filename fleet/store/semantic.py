"""Embeddings of lessons: computed in the background, stored in the database, and searched for similar meanings.

Three sources, one at a time: the static embedding of the extra ``semantic`` (token vectors, averaged: no network, no
model to run), a local folder with a model2vec model, or an OpenAI-compatible ``/embeddings`` endpoint that somebody on
this machine agreed to. To load one takes 0.2 s of processor time, so no hook does, and no correction waits for it
before it is durable. Private lessons have no embedding. The stored vectors are derived: they go with the database.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fleet.model.errors import BusyError, UsageError
from fleet.store import consent
from fleet.store.config import Semantic
from fleet.store.database import TROUBLE, get_meta, set_meta
from fleet.store.workspace import Workspace
from fleet.text.screening import redact, screened

PACKAGE = "wordllama"
LIBRARIES = ("numpy", "safetensors", "tokenizers")
SIMILAR_MIN = 0.35
"""Cosine below which two texts have nothing to do with each other: for unrelated lessons it is about 0.1."""
TEXTS_MAX = 2_000
"""Limit of texts that one pass in the background embeds."""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
WAIT_S = 10.0
_AT_ONCE = 64
_ROWS_AT_ONCE = 10_000
EMBEDDED = "embedded"
"""Key of the note (``Ingest.noted``) that changes with the lessons that are embedded, and with the model."""

Vectors = Callable[[Sequence[str]], Any]
"""From texts to a matrix with a row of length 1 for each."""


_INSTALL = (
    "in a checkout of fleet `uv tool install '.[semantic]'`; elsewhere `pipx inject fleet-learnings wordllama`, or "
    "`pip install wordllama` beside fleet"
)


class _Source(NamedTuple):
    """Source of embeddings: the name of its model, and the function that loads it, which takes the time."""

    name: str
    load: Callable[[], Vectors]


class Embeddings:
    """The embeddings of a workspace's lessons, and the source that is configured for them."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._settings = workspace.config.semantic

    @property
    def state(self) -> str:
        """State: ``on``; ``off`` by configuration; ``unagreed`` for no consent to the endpoint; ``missing`` library."""
        if self._settings.off:
            return "off"
        if self._settings.url and not self._is_agreed():
            return "unagreed"
        return "on" if self.source() else "missing"

    @property
    def hint(self) -> str:
        """The endpoint without consent, or how to install what is missing; "" where nothing is to do."""
        model = "" if self._settings.url else self._settings.model
        lacks = model and not all(map(Path.is_file, _files_of(self._workspace.root, model)))
        missing = (
            f"[semantic] model names {model}: put model.safetensors and tokenizer.json there" if lacks else _INSTALL
        )
        return {"missing": missing, "unagreed": self._settings.url}.get(self.state, "")

    def agree(self) -> None:
        """Record a person's consent to the endpoint that the configuration names: lessons are sent there."""
        self._workspace.state.agree(consent.SEMANTIC, self._consented(), self._workspace.wall(), alone=True)

    def _is_agreed(self) -> bool:
        return self._workspace.state.agrees(consent.SEMANTIC, self._consented())

    def _consented(self) -> str:
        """Return the text that is consented to: the endpoint's address, and a key of another name than the usual."""
        is_usual = self._settings.key_env == Semantic().key_env
        return self._settings.url if is_usual else f"{self._settings.url} {self._settings.key_env}"

    def source(self) -> _Source | None:
        """Return the source that is configured, installed and agreed to; None for none."""
        settings = self._settings
        if settings.off or not all(map(find_spec, LIBRARIES)):
            return None
        if settings.url:
            if not _is_safe(settings.url) or not self._is_agreed():
                return None
            key = consent.variable(settings.key_env)
            name = f"{settings.url} {settings.url_model}"
            return _Source(name, lambda: lambda texts: _from_endpoint(settings.url, settings.url_model, key, texts))
        files = _files_of(self._workspace.root, settings.model)
        if not all(map(Path.is_file, files)):
            return None
        name = _fingerprint(files[0])
        return _Source(name, lambda: _loaded(*files, name))

    def embed_new(self) -> int:
        """Embed the lessons that changed since the last time, at most ``TEXTS_MAX``; return how many.

        Called in the background, by the sidecar or at the end of a sync. If another process writes meanwhile, or an
        endpoint does not answer, the rest is left for the next time.
        """
        chosen = self.source()
        mark = f"{self._workspace.patterns.generation} {chosen.name}" if chosen else ""
        database = self._workspace.db.database
        with suppress(BusyError, OSError, ValueError, *TROUBLE):
            if chosen is None or get_meta(database.open(), EMBEDDED) == mark:
                return 0
            stale = _stale(database.open(), chosen.name)
            vectors = chosen.load() if stale else None
            due = stale[:TEXTS_MAX]
            for some in (due[at : at + _AT_ONCE] for at in range(0, len(due), _AT_ONCE)):
                matrix = vectors([screened(text) for _, text, _ in some]) if vectors else ()
                put = "INSERT OR REPLACE INTO vector VALUES (?, ?, ?, ?)"
                rows = [(*each[::2], row.astype("float16").tobytes()) for each, row in zip(some, matrix, strict=True)]
                with database.transaction() as writing:
                    writing.executemany(put, [(each, chosen.name, hash_, data) for each, hash_, data in rows])
            with database.transaction() as writing:
                writing.execute("DELETE FROM vector WHERE id NOT IN (SELECT id FROM pattern WHERE listed)")
                if len(stale) == len(due):
                    set_meta(writing, EMBEDDED, mark)
            return len(due)
        return 0

    def nearest(self, text: str, count: int, least: float = SIMILAR_MIN) -> list[tuple[str, float]]:
        """Return (id, cosine) of the lessons that mean much the same as a text, best first, from ``least`` on.

        The first call in a process loads the model. If an endpoint does not answer, the result is empty.
        """
        chosen = self.source()
        if chosen is None:
            return []
        query = "SELECT 1 FROM vector WHERE model = ?"
        if self._workspace.db.ask(lambda db: db.execute(query, (chosen.name,)).fetchone()):
            with suppress(OSError, ValueError, *TROUBLE):
                return _best(self._workspace.db.database.open(), chosen, screened(text), count, least)
        return []

    def alike(self, ids: Sequence[str], least: float, partners_max: int) -> dict[tuple[str, str], float]:
        """Return the cosines of the pairs among lessons that mean much the same, by their ids, the smaller first.

        No model is loaded: the stored vectors are compared. Pairs below the cosine ``least`` are left out; a
        lesson is paired with its ``partners_max`` closest ones.
        """
        chosen = self.source()
        if chosen is None:
            return {}
        query = "SELECT id, data FROM vector WHERE model = ? ORDER BY id"
        rows = self._workspace.db.ask(lambda db: db.execute(query, (chosen.name,)).fetchall())
        wanted, size = set(ids), len(rows[0][1]) if rows else 0
        rows = [row for row in rows if row[0] in wanted and len(row[1]) == size]
        if len(rows) < 2:
            return {}
        numpy = _library("numpy")
        matrix = _matrix(rows)
        cosines = matrix @ matrix.T
        numpy.fill_diagonal(cosines, -1.0)
        closest = numpy.argsort(-cosines, axis=1, kind="stable")[:, :partners_max]
        places = [(at, int(other)) for at, others in enumerate(closest) for other in others]
        return {
            (rows[min(pair)][0], rows[max(pair)][0]): round(float(cosines[pair]), 3)
            for pair in places
            if cosines[pair] >= least
        }

    def cosines(self, texts: Sequence[str], pairs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], float] | None:
        """Return the cosines of pairs of texts, by number; None where there is no source, or it does not answer.

        For private texts of this agent: they are sent to no source on another machine.
        """
        chosen, url = self.source(), self._settings.url
        if chosen is None or (url and not consent.is_loopback(urlsplit(url).hostname or "")):
            return None
        numbers = sorted({each for pair in pairs for each in pair})
        with suppress(OSError, ValueError):
            vectors = chosen.load() if numbers else None
            row: dict[int, Any] = {}
            for some in (numbers[at : at + _AT_ONCE] for at in range(0, len(numbers), _AT_ONCE)):
                row |= zip(some, vectors([screened(texts[n]) for n in some]) if vectors else (), strict=True)
            return {(a, b): float(row[a] @ row[b]) for a, b in pairs}
        return None


def _stale(connection: Any, model: str) -> list[tuple[str, str, bytes]]:
    """Return id, text and hash of the lessons that this model has not embedded as they read now."""
    rows = connection.execute(
        "SELECT p.id, p.text, v.hash FROM pattern p LEFT JOIN vector v ON v.id = p.id AND v.model = ? WHERE p.listed",
        (model,),
    )
    return [(each, text, hash_) for each, text, known in rows if (hash_ := _hash(text)) != known]


def _best(connection: Any, chosen: _Source, text: str, count: int, least: float) -> list[tuple[str, float]]:
    numpy = _library("numpy")
    wanted = chosen.load()([text])[0]
    rows = connection.execute(
        "SELECT v.id, v.data FROM vector v JOIN pattern p ON p.id = v.id WHERE p.listed AND v.model = ?", (chosen.name,)
    )
    hits: list[tuple[str, float]] = []
    while some := rows.fetchmany(_ROWS_AT_ONCE):
        some = [row for row in some if len(row[1]) == 2 * len(wanted)]
        cosines = _matrix(some) @ wanted if some else numpy.zeros(0)
        hits += [(some[at][0], float(cosines[at])) for at in numpy.flatnonzero(cosines >= least)]
        hits = sorted(hits, key=lambda each: (-each[1], each[0]))[:count]
    return hits


def _matrix(rows: Sequence[tuple[str, bytes]]) -> Any:
    numpy = _library("numpy")
    stored = numpy.frombuffer(b"".join(data for _, data in rows), dtype="float16")
    return stored.reshape(len(rows), -1).astype("float32")


def _files_of(root: Path, model: str) -> tuple[Path, Path]:
    """Return the weights and the tokenizer of a model2vec folder, with "" of the installed package."""
    if model:
        folder = (root / os.path.expanduser(model)).resolve()  # noqa: PTH111 - `~nosuchuser` raises in pathlib
        return folder / "model.safetensors", folder / "tokenizer.json"
    spec = find_spec(PACKAGE)
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    weights, tokens = (sorted(folder.glob(each)) for each in ("weights/*.safetensors", "tokenizers/*.json"))
    return (*weights, folder / "weights")[0], (*tokens, folder / "tokenizers")[0]


def _library(name: str) -> Any:
    """Return one of ``LIBRARIES``, loaded only where something is embedded."""
    return import_module(name)


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _fingerprint(weights: Path) -> str:
    """Return the name of a model's file: the hash of its beginning, where the tensors and their shapes are named."""
    with weights.open("rb") as file:
        return f"{weights.name} {hashlib.blake2b(file.read(1 << 16), digest_size=8).hexdigest()}"


@lru_cache(maxsize=1)
def _loaded(weights: Path, tokens: Path, name: str) -> Vectors:  # noqa: ARG001 - another model at the same place
    """Return the embedding by averaged token vectors: the tensor ``embedding.weight`` or model2vec's ``embeddings``.

    model2vec may weigh its tokens (``weights``), and let several share a row (``mapping``).
    """
    numpy = _library("numpy")
    with _library("safetensors").safe_open(str(weights), framework="numpy") as file:
        names = list(file.keys())
        table = file.get_tensor("embeddings" if "embeddings" in names else names[0])
        weight = file.get_tensor("weights") if "weights" in names else None
        mapping = file.get_tensor("mapping") if "mapping" in names else None
    tokenizer = _library("tokenizers").Tokenizer.from_file(str(tokens))
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def vectors(texts: Sequence[str]) -> Any:
        rows = []
        for encoded in tokenizer.encode_batch(list(texts), add_special_tokens=False):
            ids = encoded.ids
            embedded = table[ids if mapping is None else mapping[ids]].astype("float32")
            if weight is not None and ids:
                embedded = embedded * weight[ids].reshape(-1, 1)
            rows.append(embedded.mean(axis=0) if ids else numpy.zeros(table.shape[1], dtype="float32"))
        return _unit(numpy.array(rows))

    return vectors


def _unit(matrix: Any) -> Any:
    numpy = _library("numpy")
    lengths = numpy.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / numpy.where(lengths > 0, lengths, 1)


def _is_safe(url: str) -> bool:
    """Return whether texts may go to this address: encrypted, or to this very machine."""
    with suppress(UsageError):
        return bool(consent.Endpoint(url).check())
    return False


def _from_endpoint(url: str, model: str, key: str, texts: Sequence[str]) -> Any:
    """Return an endpoint's vectors; raise ``OSError`` where it does not answer, ``ValueError`` for another answer."""
    numpy = _library("numpy")
    address = url if url.rstrip("/").endswith("/embeddings") else f"{url.rstrip('/')}/embeddings"
    body = json.dumps({"model": model, "input": [redact(text) or " " for text in texts]}).encode()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    answer = json.loads(consent.Endpoint(address).post(body, headers, WAIT_S, ANSWER_BYTES_MAX))
    try:
        rows = [each["embedding"] for each in sorted(answer["data"], key=lambda each: each.get("index", 0))]
        matrix = numpy.array(rows, dtype="float32")
    except (KeyError, TypeError, AttributeError) as why:
        raise ValueError("the answer of the endpoint holds no embeddings") from why
    if matrix.ndim != 2 or len(matrix) != len(texts) or not numpy.isfinite(matrix).all():
        raise ValueError("the answer of the endpoint holds other embeddings than were asked for")
    return _unit(matrix)
