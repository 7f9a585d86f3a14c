"""Job listings of batch systems' commands: a heading per job and its attributes, one per line.

Job Id: 123.pbs                          qstat -f of PBS: attributes behind four spaces, a tab goes on with a value
    Job_Name = train
    exec_host = n01/0*8+n02/0*8+n03/0*8+n04/0*8+n05/0*8+n06/0*8+n07/0*8+n08
        /0*8
Job Id:	1                                qstat -f over Slurm: attributes behind a tab, nothing is wrapped
        Job_Name = train
Job_Id: 1                                oarstat -f
    name = train
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from sonde import command
from sonde.errors import ParseError, ReadError

Attributes = dict[str, str]  # of nested ones `Resource_List.walltime`
Jobs = dict[str, Attributes]  # by id


def ask(forms: Sequence[Sequence[str]], parse: Callable[[str], Jobs], *, timeout: float) -> Jobs:
    """What the first form of a command gives that the program understands and whose answer makes sense."""
    *others, last = forms
    for form in others:
        try:
            return parse(command.run(form, timeout=timeout))
        except ReadError:
            continue  # an option this version does not know, or JSON that a job's variables have broken
    return parse(command.run(last, timeout=timeout))


def parse_listing(text: str, source: str) -> Jobs:
    """The attributes of each job by its id."""
    blocks: dict[str, list[str]] = {}
    block: list[str] | None = None
    for line in text.split("\n"):
        if line.startswith(("Job Id:", "Job_Id:")):
            block = blocks.setdefault(line[7:].strip(), [])
        elif block is not None:
            block.append(line)
        elif line.strip():
            raise ParseError(source, line)
    return {name: _attributes(lines, source) for name, lines in blocks.items()}


def _attributes(lines: list[str], source: str) -> Attributes:
    found: Attributes = {}
    last = ""
    # Only the first line tells whether a tab stands for the attributes' indentation or for a wrapped value.
    wraps = bool(lines) and not lines[0].startswith("\t")
    for line in lines:
        name, equals, value = line.partition(" =")
        if wraps and last and line.startswith("\t"):
            found[last] += line[1:]
        elif equals and name.strip() and name[0].isspace():
            last = name.strip()
            found[last] = value
        elif last and line.strip():
            found[last] += "\n" + line  # a value of several lines, such as a comment
        elif line.strip():
            raise ParseError(source, line)
    return {name: value.strip() for name, value in found.items()}


def parse_json(text: str, source: str) -> dict[str, object]:
    """An object, with every number as its text: a job may be called 0123 or 1e5. Nothing at all is an empty one."""
    if not text.strip():
        return {}  # oarstat has no such job
    try:
        found = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        raise ParseError(source, text) from None
    if not isinstance(found, dict):
        raise ParseError(source, text)
    return found


def flattened(value: object, source: str) -> Attributes:
    """The attributes of a JSON object as the text form has them; a list as its members joined by `+`."""
    if not isinstance(value, dict):
        raise ParseError(source, value)
    found: Attributes = {}
    for name, item in value.items():
        if isinstance(item, dict):
            found.update({f"{name}.{key}": _text(inner) for key, inner in item.items()})
        else:
            found[name] = _text(item)
    return found


def _text(value: object) -> str:
    if value is None:
        return ""
    return "+".join(map(_text, value)) if isinstance(value, list) else str(value)


def parse_walltime(text: str) -> int | None:
    """Seconds of `600`, `0:10:0`, `100:00:00` or `2:30`; None when it is something else."""
    parts = text.split(":")
    if len(parts) > 4 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        return None
    seconds = 0
    for part, scale in zip(reversed(parts), (1, 60, 3600, 86400), strict=False):
        seconds += int(part) * scale
    return seconds
