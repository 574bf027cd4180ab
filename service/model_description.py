"""What callers are told of a served model, as plain values. Knows no routes. Always: no path of this machine."""

from dataclasses import asdict
from typing import Any

from service.context import Served


def described(served: Served) -> dict[str, Any]:
    """Its name, shape, defaults and report, its draft model, its engine, and how far its answers repeat."""
    model, engine = served.model, asdict(served.engine_info)
    reproducibility = {"level": engine.pop("reproducibility_level"), "fingerprint": engine.pop("fingerprint")}
    return {
        "name": model.name,
        "sha256": model.sha256,
        "chat": model.chat_template is not None,
        "config": asdict(model.config),
        "defaults": asdict(model.defaults),
        **asdict(model.report),
        "draft": None if model.draft is None else asdict(model.draft),
        "engine": engine,
        "reproducibility": reproducibility,
    }
