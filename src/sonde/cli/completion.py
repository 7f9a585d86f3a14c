"""Tab-completion for bash, zsh or fish.

bash:  source <(sonde completion bash)
zsh:   source <(sonde completion zsh)
fish:  sonde completion fish | source
"""

from __future__ import annotations

import argparse

from sonde.cli.main import COMMANDS, parser_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(args: argparse.Namespace) -> int:
    words = {name: words_of(name) for name in COMMANDS}
    print(fish(words) if args.shell == "fish" else bash(words, zsh=args.shell == "zsh"))
    return 0


def words_of(name: str) -> list[str]:
    """The options and verbs of a command, from its own parser."""
    parser, _ = parser_of(name)
    words: list[str] = []
    for action in parser._actions:
        words += [option for option in action.option_strings if option.startswith("--")]
        if action.choices and not action.option_strings:
            words += map(str, action.choices)
    return words


def bash(words: dict[str, list[str]], *, zsh: bool) -> str:
    cases = "\n".join(f"    {name}) words='{' '.join(options)}' ;;" for name, options in words.items())
    head = "autoload -U +X bashcompinit && bashcompinit\n" if zsh else ""
    return f"""{head}_sonde() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words
  if [ "$COMP_CWORD" -eq 1 ]; then
    words='{" ".join(words)}'
  else
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _sonde sonde"""


def fish(words: dict[str, list[str]]) -> str:
    lines = [f"complete -c sonde -n __fish_use_subcommand -f -a {name} -d '{COMMANDS[name][1]}'" for name in words]
    for name, options in words.items():
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        lines += [
            f"complete -c sonde {seen} " + (f"-l {word[2:]}" if word.startswith("--") else f"-f -a {word}")
            for word in options
        ]
    return "\n".join(lines)
