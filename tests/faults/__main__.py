"""The fault bench: `python -m tests.faults [OUT.json]` does to servers what bad days do, and shows figure beside mark.

Always: each fault has servers of its own; what one fault does is seen by no other.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from model.loading.hub import pull
from service.cli.console import count_bar
from tests.bench import machine
from tests.bench.record import markdown_table, record
from tests.faults import bounds, callers, crowds, lives
from tests.faults.figure import Figure
from tests.source_files import ROOT

NAME = "faults"
PAGE = ROOT / "docs" / "operating.md"
Fault = Callable[[Path], Iterator[Figure]]
FAULTS: dict[str, tuple[int, str, Fault]] = {
    "panic": (2, "a step raises what is no Exception, four times", lives.panics),
    "hang": (3, "a step never ends", lives.hangs),
    "overflow": (4, "the numbers of one request overflow", lives.not_finite),
    "sigterm": (5, "SIGTERM under load", lives.told_to_end),
    "drain": (6, "SIGTERM and streams that are too long", lives.told_too_late),
    "kill": (7, "kill -9, and another start", lives.killed),
    "resets": (8, "200 clients reset their streams", callers.resets),
    "leavers": (9, "clients leave while they wait", callers.leavers),
    "slow_reader": (10, "a client reads nothing", callers.slow_reader),
    "connections": (11, "10,000 connections, 4,096 descriptors", callers.connections),
    "overload": (12, "2 and 4 times as many requests as can be served", crowds.overload),
    "slowloris": (13, "500 heads and 500 bodies that never end", callers.slowloris),
    "files": (16, "broken model files, and one broken while served", bounds.files),
    "clocks": (17, "the clock jumps by hours; the process is stopped for 5 s", lives.clocks),
    "memory": (18, "more asks than memory holds", bounds.memory),
    "hog": (19, "one key asks for all of the cache, again and again", bounds.hog),
    "neighbour": (21, "another process takes one core", crowds.neighbour),
}
NOT_APPLICABLE = {
    1: "kill -9 of an engine's process: the engine is a thread of the server, so this is fault 7",
    14: "a full disk when a session is saved: nothing is written while it serves",
    15: "damaged session files: there are none, a session is only a cache",
    20: "the soak has a command of its own",
}


def measure(names: tuple[str, ...], model: Path) -> dict[str, Any]:
    figures = []
    found_machine = machine.described()
    with count_bar("faults", len(names)) as on_fault:
        for name in names:
            number, title, fault = FAULTS[name]
            try:
                found = list(fault(model))
            except Exception as error:
                error.add_note(f"in the fault {name}")
                raise
            figures += [
                {"title": title, "what": each.what, "value": each.value, "mark": each.mark, "holds": each.holds}
                | {"fault": number}
                for each in found
            ]
            on_fault()
    return {
        "command": "python -m tests.faults --record",
        "machine": found_machine,
        "figures": figures,
        "not_applicable": [{"fault": number, "reason": reason} for number, reason in NOT_APPLICABLE.items()],
    }


def table(figures: dict[str, Any]) -> str:
    rows = []
    title = None
    for each in figures["figures"]:
        shown = each["title"] if each["title"] != title else ""
        title = each["title"]
        rows.append([shown, each["what"], f"{each['value']}{'' if each['holds'] else ' (missed)'}", each["mark"]])
    left_out = "\n".join(f"- {each['fault']}: {each['reason']}" for each in figures["not_applicable"])
    machine_then = figures["machine"]
    note = (
        f"{machine_then['usable_cores']} cores, which others kept busy to a load of {machine_then['load_average']}; "
        f"default model. `{figures['command']}`"
    )
    return f"{markdown_table(['fault', 'figure', 'measured', 'mark'], rows)}\n\n{note}\n\nNot tried:\n\n{left_out}"


@click.command()
@click.argument("out", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--only", multiple=True, type=click.Choice(list(FAULTS)), help="This fault; may be given several times.")
@click.option("--model", type=click.Path(exists=True, path_type=Path), help="Another model than the default one.")
@click.option("--record", "records", is_flag=True, help="Keep what is found in docs/.")
def main(*, out: Path | None, only: tuple[str, ...], model: Path | None, records: bool) -> None:
    """Do to servers what bad days do, and show each figure beside its mark; 1 where one is missed."""
    figures = measure(only or tuple(FAULTS), model or pull())
    if out is not None:
        out.write_text(json.dumps(figures, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    if records:
        record(NAME, figures, table(figures), page=PAGE)
    click.echo(table(figures))
    if not all(each["holds"] for each in figures["figures"]):
        raise click.exceptions.Exit(1)


if __name__ == "__main__":
    main()
