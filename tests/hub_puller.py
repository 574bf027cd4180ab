"""A small model on the hub of this machine, and what pulls it."""

import hashlib
from pathlib import Path

from model.loading.hf_pull import pull_from_hub
from model.loading.hf_reference import HubAccess, HubReference
from tests.fake_hub import FakeHub

WEIGHTS = bytes(range(256)) * 700
FILES = {
    "README.md": b"not needed",
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"never taken",
    "onnx/model.safetensors": b"another one",
}
TAKEN = ["config.json", "model.safetensors", "pulled.json", "tokenizer.json"]
REPO = HubReference("ORG", "REPO")


class Puller:
    """Pulls into a folder, without waiting between attempts."""

    def __init__(self, folder: Path, hub: FakeHub) -> None:
        self.folder, self.hub = folder, hub
        self.waits: list[float] = []
        self.seen: list[tuple[int, int]] = []

    def __call__(self, reference: HubReference = REPO, token: str | None = None) -> Path:
        return pull_from_hub(
            reference,
            HubAccess(self.hub.endpoint, token),
            lambda done, total: self.seen.append((done, total)),
            folder=self.folder,
            sleep=self.waits.append,
        )

    @property
    def part(self) -> Path:
        """Where the weights are while they come."""
        partial = self.folder / "hf" / "main" / "ORG" / "REPO+partial"
        return partial / f"{hashlib.sha256(WEIGHTS).hexdigest()}.part"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
