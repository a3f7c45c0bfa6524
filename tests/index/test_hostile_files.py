"""Index files that somebody made up, with a checksum that fits: an error or a usable store, and never a crash.

hnswlib follows what it reads unchecked, so each is loaded in a process of its own kind, which a crash would end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from fluxmem_local.index import HNSWVectorStore

NUM_FILES = 2000
FUZZ = """
import hashlib, json, random, resource, struct, sys
import numpy as np
from pathlib import Path
from fluxmem_local.errors import FluxMemError
from fluxmem_local.index import HNSWVectorStore
from fluxmem_local.index.files import _HASH_BYTES, _HEADER
from fluxmem_local.index.graph import _GRAPH_HEADER

folder, number_of_files = Path(sys.argv[1]), int(sys.argv[2])
# What asks for much more memory than the file has is hostile, too.
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if Path("/proc").exists() else 0
if size:
    resource.setrlimit(resource.RLIMIT_AS, (size + 2**31, size + 2**31))
chance, vectors = random.Random(11), np.random.default_rng(5).normal(size=(90, 8)).astype(np.float32)
store = HNSWVectorStore(exact_below=0, m=4)
store.add([f"v{number}" for number in range(80)], vectors[:80])
store.delete(["v3", "v4"])
store.save(folder / "whole", generation=1)
whole = (folder / "whole").read_bytes()
fields = list(_HEADER.unpack_from(whole))
start = _HEADER.size + _HASH_BYTES
parts = [whole[start + sum(fields[5:5 + n]):start + sum(fields[5:6 + n])] for n in range(3)]
EDGES = (0, 1, 2, 3, 7, 79, 80, 81, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)
PLACES = [0, 8, 16, 24, 32, 40, 48, 52, 56, 64, 72, 80, 88]

def value(form):
    number = chance.choice(EDGES) if chance.random() < 0.7 else chance.getrandbits(64)
    return number % 2 ** (8 * struct.calcsize(form))

def made_up():
    head, (words, rows, body) = list(fields), [bytearray(part) for part in parts]
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        kind = chance.randrange(8)
        if kind == 0:
            place = chance.choice(PLACES)
            form = "<I" if place in (48, 52) else "<Q"
            struct.pack_into(form, body, place, value(form))
        elif kind == 1:
            struct.pack_into("<d", body, 80, chance.choice((0.0, -1.0, 1e300, float("inf"), float("nan"), 0.7)))
        elif kind == 2 and len(body) > 200:
            struct.pack_into("<I", body, 4 * chance.randrange(len(body) // 4 - 1), value("<I"))
        elif kind == 3:
            for _ in range(chance.choice((1, 3, 30))):
                body[chance.randrange(len(body))] = chance.randrange(256)
        elif kind == 4:
            del body[chance.randrange(_GRAPH_HEADER.size, len(body)):]
            body += chance.randbytes(chance.choice((0, 4, 400)))
        elif kind == 5:
            named = json.loads(words)
            spot = chance.randrange(78)
            named["labels"][spot] = chance.choice((-1, 0, 79, 80, 10**9, 2**70, 1.5, "1", None, named["labels"][0]))
            if chance.random() < 0.3:
                named["settings"][chance.choice(list(named["settings"]))] = chance.choice((-1, 0, 1, 2**40, "x", None))
            if chance.random() < 0.3:
                named["ids"][spot] = chance.choice(("", "v0", 7, None, ["v1"]))
            words[:] = json.dumps(named).encode()
        elif kind == 6:
            head[chance.choice((1, 2, 3, 4))] = value("<I")
        else:
            width, _, data = struct.unpack_from("<3Q", body, 24)
            place = _GRAPH_HEADER.size + chance.randrange(80) * width + data + 4 * chance.randrange(8)
            if place + 4 <= len(body):
                struct.pack_into("<f", body, place, chance.choice((0.0, 1e30, float("nan"))))
        if len(body) < _GRAPH_HEADER.size:
            break
    head[5:] = [len(words), len(rows), len(body)]
    header = _HEADER.pack(*head)
    return header + hashlib.sha256(header + words + rows + body).digest() + words + rows + body

loaded = refused = 0
for number in range(number_of_files):
    (folder / "index").write_bytes(made_up())
    print(number, flush=True)
    try:
        again, _ = HNSWVectorStore.load(folder / "index")
    except FluxMemError:
        refused += 1
        continue
    loaded += 1
    for query in vectors[:5]:
        found = again.search(query, 10)
        assert len({id for id, _ in found}) == len(found) == 10
    again.add([f"new{row}" for row in range(10)], vectors[80:])
    again.delete(["v0", "new1"])
    assert again.search(vectors[81], 3)[0][1] <= 1
    again.save(folder / "next", generation=2)
print("done", loaded, refused)
"""


def test_no_made_up_file_ends_the_process(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, str(tmp_path), str(NUM_FILES)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        timeout=250,
        check=False,
    )
    *_, last = done.stdout.splitlines()
    assert done.returncode == 0, (done.returncode, last, done.stderr[-2000:])
    word, loaded, refused = last.split()
    assert (word, int(loaded) + int(refused)) == ("done", NUM_FILES)
    assert int(loaded) > 0
    assert int(refused) > NUM_FILES // 2
    # Nothing is left of the files that hnswlib reads and writes by name.
    assert sorted(each.name for each in tmp_path.iterdir()) == ["index", "next", "whole"]


def test_what_a_killed_process_left_is_swept_away(tmp_path: Path) -> None:
    store = HNSWVectorStore(exact_below=0)
    store.add(["a", "b"], np.eye(2))
    for name in ("old", "fresh"):
        (tmp_path / f".index.{name}").write_text("half")
        (tmp_path / f".index.{name}-folder").mkdir()
        (tmp_path / f".index.{name}-folder" / "graph").write_text("half")
    for name in (".index.old", ".index.old-folder"):
        os.utime(tmp_path / name, (0, 0))
    store.save(tmp_path / "index", generation=1)
    assert sorted(each.name for each in tmp_path.iterdir()) == [".index.fresh", ".index.fresh-folder", "index"]
