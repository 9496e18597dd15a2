"""Model folders and data files that carry code: loading, registering, planning and importing never run it."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jinja2.exceptions import SecurityError

from quintain.errors import InvalidInput, QuintainError, Refused
from quintain.records.agent import ModelRef
from quintain.records.documents import read_document
from quintain.records.hyperparameters.methods import LoraConfig
from quintain.settings import Settings
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.imports import import_trajectories
from quintain.tools.services import open_services
from quintain.tools.training.agents import register_agent
from quintain.trainers.models.loading import load_model, save_model
from tiny_models import save_tiny_model

Change = Callable[[Path, Path], object]
"""Makes a folder hostile: its code creates the second path."""


class Touch:
    """Unpickling it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def pickled(name: str, *, instead_of: str = "", torch_format: bool = False) -> Change:
    """A pickle with code under a name, in torch's zip format where asked."""

    def change(folder: Path, ran: Path) -> None:
        (folder / instead_of).unlink() if instead_of else None
        (folder / name).parent.mkdir(exist_ok=True)
        content = {"weight": Touch(ran)}
        torch.save(content, folder / name) if torch_format else (folder / name).write_bytes(pickle.dumps(content))

    return change


def configured(file: str, **entries: Any) -> Change:
    """Entries of a configuration file that name code, and a module of that name beside it."""

    def change(folder: Path, ran: Path) -> None:
        found = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
        (folder / file).write_text(json.dumps(found | entries))
        code = f"open({str(ran)!r}, 'w')\nclass C: pass\nM = T = C\ndef generate(*_, **__): pass\n"
        for path in ("evil.py", "modeling_evil.py", "custom_generate/generate.py"):
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(code)

    return change


def templated(text: str) -> Change:
    def change(folder: Path, ran: Path) -> None:
        (folder / "chat_template.jinja").write_text(text.replace("RAN", str(ran)))

    return change


def sharded(folder: Path, ran: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder.parent / "evil.bin").write_bytes(pickle.dumps({"weight": Touch(ran)}))
    index = {"metadata": {}, "weight_map": {"model.embed_tokens.weight": "../evil.bin"}}
    for name in ("pytorch_model.bin.index.json", "model.safetensors.index.json"):
        (folder / name).write_text(json.dumps(index))


CLASSES = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
GLOBALS = "{{ cycler.__init__.__globals__.os.system('touch RAN') }}{{ namespace.__init__.__globals__ }}"
MODELS: dict[str, Change] = {
    "pickled weights": pickled("pytorch_model.bin", instead_of="model.safetensors"),
    "pickled weights of torch": pickled("pytorch_model.bin", instead_of="model.safetensors", torch_format=True),
    "a pickle named safetensors": pickled("model.safetensors"),
    "torch's zip named safetensors": pickled("model.safetensors", torch_format=True),
    "an index of shards outside": sharded,
    "a pickle named as the tokenizer": pickled("tokenizer.json"),
    "a pickle named as the configuration": pickled("config.json"),
    "pickles beside the weights": pickled("optimizer.pt"),
    "pickled arguments of a trainer": pickled("training_args.bin", torch_format=True),
    "a pickled value head": pickled("value_head.safetensors"),
    "a strange model with code": configured(
        "config.json", model_type="strange", auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}
    ),
    "a known model with code": configured("config.json", auto_map={"AutoModelForCausalLM": "evil.M"}),
    "code of a Hub repository": configured("config.json", auto_map={"AutoModelForCausalLM": "evil/repo--evil.M"}),
    "a class outside": configured("config.json", architectures=["../evil.M"]),
    "trust in the configuration": configured("config.json", trust_remote_code=True, auto_map={"AutoConfig": "evil.C"}),
    "attention of a Hub repository": configured("config.json", attn_implementation="evil/kernel"),
    "a tokenizer with code": configured("tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", "evil.T"]}),
    "a tokenizer's class with code": configured("tokenizer_config.json", tokenizer_class="evil.T"),
    "decoding with code": configured("generation_config.json", custom_generate="evil"),
    "a processor with code": configured("processor_config.json", auto_map={"AutoProcessor": "evil.C"}),
    "a template that reaches for classes": templated(CLASSES),
    "a template that reaches for globals": templated(GLOBALS),
}
ADAPTERS: dict[str, Change] = {
    "a pickled adapter": pickled("adapter_model.bin", instead_of="adapter_model.safetensors"),
    "a pickled adapter of torch": pickled(
        "adapter_model.bin", instead_of="adapter_model.safetensors", torch_format=True
    ),
    "a pickle named as an adapter": pickled("adapter_model.safetensors"),
    "an adapter with a library": configured(
        "adapter_config.json", auto_mapping={"base_model_class": "C", "parent_library": "evil"}
    ),
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model and an adapter of it."""
    folder = tmp_path_factory.mktemp("tiny")
    base = save_tiny_model(folder / "base", hidden=16)
    reference = ModelRef.model_validate({"source": "folder", "path": str(base)})
    loaded = load_model(reference, lora=LoraConfig(rank=2), train=True)
    save_model(loaded.model, loaded.tokenizer, folder / "adapter")
    return base, folder / "adapter"


def test_no_code_of_a_model_folder_runs(
    tiny: tuple[Path, Path],
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    """Each folder is registered by a client, loaded as the worker does, and used where it could be loaded."""
    record_property("cases", len(MODELS) + len(ADAPTERS))
    base, adapter = tiny
    services = open_services(settings)
    for number, (name, change) in enumerate((MODELS | ADAPTERS).items()):
        folder = Path(
            shutil.copytree(adapter if name in ADAPTERS else base, settings.inbox_dir / f"m{number}" / "model")
        )
        ran = tmp_path / f"ran{number}"
        change(folder, ran)
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            patch.syspath_prepend(folder)
            more = {"adapter": str(folder), "path": str(base)} if name in ADAPTERS else {"path": str(folder)}
            try:
                register_agent(services, f"m{number}", str(folder))
            except QuintainError:
                pass
            try:
                loaded = load_model(ModelRef.model_validate({"source": "folder", **more}))
                text = loaded.tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False)
                assert "<class" not in str(text), name
            except QuintainError:
                pass
            except SecurityError:
                assert change in (
                    MODELS["a template that reaches for classes"],
                    MODELS["a template that reaches for globals"],
                )
        assert not ran.exists(), name
    services.close()


def table(path: Path, ran: Path) -> None:
    """Parquet with a pickled extension type in its schema, as arrow ran it before version 14 (CVE-2023-47248)."""
    import pyarrow
    import pyarrow.parquet

    kind = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": pickle.dumps(Touch(ran))}
    field = pyarrow.field("prompt", pyarrow.string(), metadata=kind)
    rows = pyarrow.table([["a"], ["b"]], schema=pyarrow.schema([field, pyarrow.field("response", pyarrow.string())]))
    pyarrow.parquet.write_table(rows, path)


def archive(path: Path, ran: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("../../ran", "x")
        file.writestr("rows.pkl", pickle.dumps(Touch(ran)))
        link = zipfile.ZipInfo("link.jsonl")
        link.external_attr = 0o120777 << 16
        file.writestr(link, "/etc/passwd")


def array(path: Path, ran: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([Touch(ran)], dtype=object), allow_pickle=True)
    path.write_bytes(buffer.getvalue())


DATA: dict[str, Change] = {
    "rows.pkl": lambda path, ran: path.write_bytes(pickle.dumps([Touch(ran)])),
    "rows.jsonl": lambda path, ran: path.write_bytes(pickle.dumps([Touch(ran)])),
    "rows.jsonl.gz": lambda path, ran: path.write_bytes(gzip.compress(pickle.dumps([Touch(ran)]))),
    "rows.json": lambda path, ran: path.write_text(json.dumps({"__reduce__": ["os.system", f"touch {ran}"]})),
    "rows.parquet": table,
    "rows.npy": array,
    "rows.zip": archive,
    "rows.pt": lambda path, ran: torch.save([Touch(ran)], path),
    "rows.py": lambda path, ran: path.write_text(f"open({str(ran)!r}, 'w')"),
    "rows.yaml": lambda path, ran: path.write_text(f"a: !!python/object/apply:os.system ['touch {ran}']"),
}


@pytest.mark.parametrize(
    "name", ["chat_template.jinja", "tokenizer.json", "model.safetensors", "additional_chat_templates"]
)
def test_no_link_in_a_model_folder_leads_out_of_the_roots(
    tiny: tuple[Path, Path], settings: Settings, tmp_path: Path, name: str
) -> None:
    """A template is in each prompt that a preview shows, and an export copies it. A pipe in its place lets no job wait."""
    base, _ = tiny
    services = open_services(settings)
    folder = Path(shutil.copytree(base, settings.inbox_dir / "model"))
    inside = folder / "notes"
    inside.symlink_to(folder / "config.json")
    register_agent(services, "inside", str(folder))
    secret = tmp_path / "secret"
    secret.write_text("canary")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    with pytest.raises(Refused, match=r"\[outside_roots\]"):
        register_agent(services, "outside", str(folder))
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(InvalidInput, match=rf"\[model_damaged\].*'{name}', a pipe"):
        register_agent(services, "waiting", str(folder))
    services.close()


def test_no_code_of_a_data_file_runs(
    settings: Settings, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Each file alone, and in a folder as a script of the library that reads data sets would be."""
    record_property("cases", len(DATA))
    services = open_services(settings)
    for name, change in DATA.items():
        folder, ran = settings.inbox_dir / name.replace(".", "-"), tmp_path / f"ran-{name}"
        folder.mkdir()
        change(folder / name, ran)
        (folder / f"{folder.name}.py").write_text(f"open({str(ran)!r}, 'w')")
        for path in (folder / name, folder):
            for attempt in (
                lambda path=path: export_dataset(services, "sft", f"d{path.suffix[1:]}", path=str(path)),
                lambda path=path: import_trajectories(services, str(path)),
                lambda path=path: read_document(path),
            ):
                try:
                    attempt()
                except QuintainError:
                    pass
        assert not ran.exists(), name
    assert not (settings.home / "ran").exists()
    services.close()
