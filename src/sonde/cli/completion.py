"""Tab-completion for bash, zsh or fish: commands, their verbs, options, and the values an option takes.

bash:  source <(sonde completion bash)
zsh:   source <(sonde completion zsh)
fish:  sonde completion fish | source

For every user of a machine (the deb and the rpm have done it; zsh of Red Hat and SUSE looks in site-functions):
  sonde completion bash > /usr/share/bash-completion/completions/sonde
  sonde completion zsh > /usr/share/zsh/vendor-completions/_sonde
  sonde completion fish > /usr/share/fish/vendor_completions.d/sonde.fish
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from sonde.cli.main import COMMANDS, parser_of
from sonde.registry import COLLECTORS, SINKS
from sonde.tracing.kineto import ACTIVITIES

_FILES = ("FILE", "DIR", "PATH", "directory", "file")  # metavars of values that are files
# Metavars of values that are names: of plug-ins, of what a trace records.
_NAMES = {"SINK": SINKS, "A,B": COLLECTORS, "KIND,KIND": ACTIVITIES}


# Whether the words behind `sonde` begin with some, or are these and no more; names behind those of a list begun.
_FISH_PLACES = """function __sonde_at
    set -l words (commandline -opc)
    set -e words[1]
    string match -q -- "$argv *" "$words "
end
function __sonde_next
    set -l words (commandline -opc)
    set -e words[1]
    test "$words" = "$argv"
end
function __sonde_list
    set -l begun (commandline -ct | string replace -r '^--[^=]*=' '' | string replace -r '[^,]*$' '')
    printf '%s\\n' $begun$argv
end"""


class Option(NamedTuple):
    """An option as a shell needs to know it."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]
    files: bool
    many: bool = False  # several of the choices, with commas between them


class Place(NamedTuple):
    """What can be typed behind some words: `sonde config` → its verbs, `sonde config show` → its options."""

    words: tuple[str, ...]  # the command and its verb
    following: dict[str, str]  # verbs or values, each with its help
    options: tuple[Option, ...]

    @property
    def spelled(self) -> list[str]:
        """Everything that may come next: verbs first, then the long options."""
        return [*self.following, *(name for option in self.options for name in option.names if name.startswith("--"))]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that shall learn it")


def run(args: argparse.Namespace) -> int:
    print(script(args.shell))
    return 0


def script(shell: str) -> str:
    """What a shell must read to know all commands."""
    places = [place for name in COMMANDS for place in places_of(parser_of(name)[0], (name,))]
    return {"bash": bash, "zsh": zsh, "fish": fish}[shell](places)


def places_of(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[Place]:
    """The parser of a command and those of its verbs."""
    following: dict[str, str] = {}
    options: list[Option] = []
    below: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        if action.option_strings:
            options.append(_option(action))
        elif isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            following |= {verb: helps.get(verb, "") for verb in action.choices}
            below += action.choices.items()
        elif action.choices:
            following |= {str(choice): "" for choice in action.choices}
    yield Place(words, following, tuple(options))
    for verb, sub in below:
        yield from places_of(sub, (*words, verb))


def _option(action: argparse.Action) -> Option:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    choices = tuple(map(str, action.choices or sorted(_NAMES.get(metavar, ()))))
    files, many = metavar in _FILES, "," in metavar and bool(choices)
    return Option(tuple(action.option_strings), action.help or "", action.nargs != 0, choices, files, many)


def _keys(places: list[Place]) -> str:
    """The words that lead to a deeper place, as a pattern of a case."""
    return "|".join(f'" {" ".join(place.words)}"' for place in places)


def _values(places: list[Place]) -> Iterator[tuple[str, Option]]:
    """The pattern of the words before a value, with the option that takes it."""
    for place in places:
        for option in place.options:
            if option.takes_value:
                yield "|".join(f'" {" ".join(place.words)} {name}"' for name in option.names), option


def bash(places: list[Place]) -> str:
    cases = "\n".join(f"    \" {' '.join(place.words)}\") words='{' '.join(place.spelled)}' ;;" for place in places)
    values = "\n".join(
        f"    {pattern}) words='{' '.join(option.choices)}'{' many=1' if option.many else ''} ;;"
        for pattern, option in _values(places)
    )
    # Readline takes = for a word of its own: `--log-level=de` is three.
    return f"""_sonde() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} at= words= many= begun= i
  if [ "$word" = = ]; then
    word=
  elif [ "$before" = = ]; then
    before=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$at ${{COMP_WORDS[i]}}" in
    {_keys(places)}) at="$at ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$at $before" in
{values}
  *)
    case "$at" in
    "") words='{" ".join(COMMANDS)}' ;;
{cases}
    esac ;;
  esac
  if [ "$many" ]; then
    begun=${{word%"${{word##*,}}"}}
    compopt -o nospace 2>/dev/null
  fi
  COMPREPLY=($(compgen -P "$begun" -W "$words" -- "${{word#"$begun"}}"))
}}
complete -o default -F _sonde sonde"""


def zsh(places: list[Place]) -> str:
    cases = "\n".join(_zsh_case(place) for place in places)
    values = "\n".join(f"    {pattern}) {_zsh_value(option)}; return ;;" for pattern, option in _values(places))
    commands = " ".join(_zsh_item(name, text) for name, (_, text) in COMMANDS.items())
    # Found in a directory of $fpath the file is the function's body; sourced, it must register the function itself.
    return f"""#compdef sonde
_sonde() {{
  local at= i
  local -a items options
  for ((i = 2; i < CURRENT; i++)); do
    case "$at ${{words[i]}}" in
    {_keys(places)}) at="$at ${{words[i]}}" ;;
    esac
  done
  case "$at ${{words[CURRENT-1]}}" in
{values}
  esac
  case "$at" in
    "") items=({commands}) ;;
{cases}
  esac
  (( $#items )) && _describe 'command' items
  (( $#options )) && _describe 'option' options
  (( $#items )) || _files
}}
if [ "$funcstack[1]" = _sonde ]; then
  _sonde "$@"
else
  compdef _sonde sonde
fi"""


def _zsh_case(place: Place) -> str:
    items = " ".join(_zsh_item(word, text) for word, text in place.following.items())
    options = " ".join(
        _zsh_item(name, option.help) for option in place.options for name in option.names if name.startswith("--")
    )
    return f'    " {" ".join(place.words)}") items=({items}) options=({options}) ;;'


def _zsh_item(word: str, text: str) -> str:
    """`'--json:print an object'`; a colon would end the word."""
    return _quoted(word.replace(":", "\\:") + (f":{text}" if text else ""))


def _zsh_value(option: Option) -> str:
    if option.many:
        return f"compset -P '*,'; compadd -S '' -- {' '.join(option.choices)}"
    if option.choices:
        return f"compadd -- {' '.join(option.choices)}"
    return "_files" if option.files else f"_message {_quoted(option.help)}"


def fish(places: list[Place]) -> str:
    lines = _FISH_PLACES.splitlines()
    lines += [
        f"complete -c sonde -n __fish_use_subcommand -f -a {name} -d {_quoted(text)}"
        for name, (_, text) in COMMANDS.items()
    ]
    for place in places:
        at = " ".join(place.words)
        lines += [
            f"complete -c sonde -n '__sonde_next {at}' -f -a {word} -d {_quoted(text)}"
            for word, text in place.following.items()
        ]
        lines += [f"complete -c sonde -n '__sonde_at {at}' {_fish_option(option)}" for option in place.options]
    return "\n".join(lines)


def _fish_option(option: Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    value = []
    choices = " ".join(option.choices)
    if choices:
        value = [f"-x -a {_quoted(f'(__sonde_list {choices})' if option.many else choices)}"]
    elif option.takes_value:
        value = ["-r -F" if option.files else "-x"]
    return " ".join([*names, *value, f"-d {_quoted(option.help)}"])


def _quoted(text: str) -> str:
    """One word for a shell; an apostrophe becomes the typographic one, which no shell reads."""
    return "'" + text.replace("\\", "").replace("'", "’").replace("%%", "%").replace("\n", " ") + "'"
