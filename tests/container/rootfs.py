"""Image steps without an image: each stage is a folder with a root file system, and `RUN` runs in it by chroot.

Needs root on Linux, `debootstrap`, `unshare` and `setpriv`. Debian's own Python of the release that the Dockerfile
names stands in for that of the official image. Knows nothing of Tane.
Always: commands, users, variables and copied files come from the Dockerfile and the .dockerignore, none from here.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.container.dockerfile import Instruction, pairs
from tests.source_files import ROOT

RELEASE = "bookworm"
SLIM = ("ca-certificates", "python3", "python3-venv", "python3-pip", "python-is-python3")
BUILDER = ("g++", "make", "python3-dev")
"""What the full image has beside."""
BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SAYINGS = ("EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD", "LABEL")
PASSED_ON = ("PIP_", "SSL_CERT_FILE")
"""How this machine's pip finds its index: while building, as build arguments would say it."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass
class Stage:
    """A root file system, and what the instructions so far said about running in it."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": BASE_PATH})
    arguments: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"
    folder: str = "/"
    words: dict[str, str] = field(default_factory=dict)
    """The last of each instruction that only says something, as it was written."""

    def record(self, name: str, rest: str) -> None:
        """Keep what the image says of itself. Raises NotImplementedError when it would have to do something."""
        if name not in SAYINGS:
            raise NotImplementedError(f"the Dockerfile has {name}, which is not carried out here")
        self.words[name] = rest


def bases(work: Path) -> tuple[Path, Path]:
    """A minimal system with Python, and one with a compiler too. Made once in the folder."""
    slim, full = work / "slim", work / "full"
    if not slim.exists():
        made = work / "slim.part"
        shutil.rmtree(made, ignore_errors=True)
        _call("debootstrap", "--variant=minbase", f"--include={','.join(SLIM)}", RELEASE, str(made))
        shutil.rmtree(made / "var/cache/apt", ignore_errors=True)
        shutil.rmtree(made / "var/lib/apt/lists", ignore_errors=True)
        made.rename(slim)
    if not full.exists():
        made = work / "full.part"
        shutil.rmtree(made, ignore_errors=True)
        _call("cp", "-a", str(slim), str(made))
        shutil.copy("/etc/resolv.conf", made / "etc/resolv.conf")
        _call("chroot", str(made), "apt-get", "-q", "update")
        _call("chroot", str(made), "apt-get", "-q", "install", "--yes", "--no-install-recommends", *BUILDER)
        made.rename(full)
    return slim, full


def build(
    stages: Sequence[Sequence[Instruction]], work: Path, arguments: Mapping[str, str], binds: Sequence[Path] = ()
) -> Stage:
    """Carry out every stage in a new folder each; the last one is returned. `binds` are seen while building.

    Raises CalledProcessError, and NotImplementedError for an instruction that is not known here.
    """
    slim, full = bases(work)
    built: dict[str, Stage] = {}
    for number, ((_, source), *rest) in enumerate(stages):
        image, _, name = source.partition(" AS ")
        root = work / f"stage-{number}"
        shutil.rmtree(root, ignore_errors=True)
        _call("cp", "-a", str(slim if "slim" in image else full), str(root))
        stage = built[name] = Stage(root)
        for instruction in rest:
            carry_out(stage, instruction, built, arguments, binds)
    return stage


def carry_out(
    stage: Stage,
    instruction: Instruction,
    built: Mapping[str, Stage],
    arguments: Mapping[str, str],
    binds: Sequence[Path],
) -> None:
    """Change the stage as the instruction says; `built` are the stages before it by their names."""
    name, rest = instruction
    match name:
        case "ARG":
            stage.arguments |= {each: arguments.get(each, value) for each, value in pairs(rest).items()}
        case "ENV":
            stage.environment |= {each: _expand(value, stage.environment) for each, value in pairs(rest).items()}
        case "WORKDIR":
            stage.folder = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "USER":
            stage.user = rest
        case "COPY":
            _copy(stage, rest.split(), built)
        case "RUN":
            _run(stage, rest, binds)
        case _:
            stage.record(name, rest)


def _expand(value: str, environment: Mapping[str, str]) -> str:
    for name, known in environment.items():
        value = value.replace(f"${name}", known)
    return value


def _copy(stage: Stage, words: list[str], built: Mapping[str, Stage]) -> None:
    *sources, target = words
    source_root, ignored = ROOT, _ignored_names()
    if sources[0].startswith("--from="):
        source_root, ignored = built[sources.pop(0).removeprefix("--from=")].root, ()
    folder = stage.root / stage.folder.lstrip("/")
    goal = (stage.root / target.lstrip("/")) if target.startswith("/") else folder / target
    for name in sources:
        source = source_root / name.lstrip("/")
        if source.is_dir():
            shutil.copytree(source, goal, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*ignored))
        else:
            shutil.copy2(source, goal)


def _ignored_names() -> tuple[str, ...]:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return tuple(line.removeprefix("**/") for line in lines if line.startswith("**/"))


def _run(stage: Stage, command: str, binds: Sequence[Path]) -> None:
    own = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    environment = own | stage.environment | {name: value for name, value in stage.arguments.items() if value}
    shutil.copy("/etc/resolv.conf", stage.root / "etc/resolv.conf")
    if CERTIFICATES.exists():
        shutil.copy(CERTIFICATES, stage.root / CERTIFICATES.relative_to("/"))
    # Standard output is for results; what builders say goes where progress goes.
    subprocess.run(
        entering(stage, ["/bin/sh", "-c", command], environment, binds={path: path for path in binds}),
        check=True,
        stdout=2,
    )


def entering(
    stage: Stage,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    read_only: bool = False,
    binds: Mapping[Path, Path] | None = None,
) -> list[str]:
    """The command line that runs a command in the stage as its user, as process 1 of a process space of its own.

    With `read_only` the tree cannot be written, /tmp is empty memory, and the process has no capabilities and can get
    none.
    `binds` maps what is on this machine to where it is seen, read-only then.
    """
    root = stage.root
    lines = ["set -e", f"mount --bind '{root}' '{root}'"]
    if read_only:
        lines += [f"mount -o remount,bind,ro '{root}'", f"mount -t tmpfs -o mode=1777 tmpfs '{root}/tmp'"]
    for source, target in (binds or {}).items():
        _make_place(source, root / target.relative_to("/"))
        place = f"'{root}/{target.relative_to('/')}'"
        lines += [f"mount --bind '{source}' {place}", f"mount -o remount,bind,ro {place}"]
    lines += [f"mount -t proc proc '{root}/proc'"]
    lines += [f"mount --bind /dev/{name} '{root}/dev/{name}'" for name in ("null", "zero", "random", "urandom")]
    lines += ['exec "$@"']
    uid, gid = stage.user.split(":")
    drop = ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"] if read_only else []
    variables = [f"{name}={value}" for name, value in environment.items()]
    return [
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", "\n".join(lines), "sh"),
        *("chroot", str(root), "setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", *drop, "--"),
        *("env", "--ignore-environment", f"--chdir={stage.folder}", *variables, *command),
    ]


def _make_place(source: Path, target: Path) -> None:
    if target.exists():
        return
    if source.is_dir():
        target.mkdir(parents=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()


@contextmanager
def running(command: Sequence[str]) -> Iterator["Running"]:
    """A command made by `entering`, until the block ends."""
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            yield Running(process)
        finally:
            if process.poll() is None:
                process.kill()


@dataclass(frozen=True)
class Running:
    """`process` is the one that waits outside; the command is its child."""

    process: "subprocess.Popen[bytes]"

    @property
    def process_id(self) -> int:
        """The command's own, as this machine numbers it."""
        outer = self.process.pid
        (child,) = Path(f"/proc/{outer}/task/{outer}/children").read_text(encoding="utf-8").split()
        return int(child)

    def status(self) -> dict[str, str]:
        """The fields of the command's /proc status."""
        text = Path(f"/proc/{self.process_id}/status").read_text(encoding="utf-8")
        return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def size_of(path: Path) -> int:
    """Bytes of all files below, as `du` counts their blocks."""
    answer = subprocess.run(["du", "-s", "-B1", path], capture_output=True, text=True, check=True)
    return int(answer.stdout.split()[0])


def _call(*command: str) -> None:
    subprocess.run(command, check=True, stdout=2)
