#!/usr/bin/env python3
"""Writes the manual page and the shell completions from the program's own help: manual.py PROGRAM FOLDER

Writes FOLDER/verbatim.1, verbatim.bash, _verbatim (zsh) and verbatim.fish. Names, arguments and meanings of subcommands and options are
stated once, in the help texts of engine/cli/ and engine/common/ and in main.c's table. This program parses `verbatim help` and `verbatim
COMMAND --help`, whose form is: a usage, then paragraphs, with options on lines that start with two spaces, their name, argument and
meaning. tests/unit/test_install.py compares the names with the option tables of the sources. install.py imports it.
"""
import os
import re
import subprocess
import sys
import textwrap
import time

OPTION = re.compile(r"(?:^  |(?<=  ))(--?[a-zA-Z][a-z0-9-]*)(?:, (--?[a-z][a-z0-9-]*))?(?: (?=\S)(\S+))?")
USAGE_OPTION = re.compile(r"(?<![\w-])(--?[a-zA-Z][a-z0-9-]*)(?: (?![\[\]|-])([^\s\]]+))?")
WORDS = {"--device": ["auto", "cpu", "gpu"]}  # possible values of arguments whose help is a sentence
EXITS = [
    ("0", "Success; of comparisons, all is equal."),
    ("2", "The command line is wrong."),
    ("3", "A file cannot be opened, read or written."),
    ("4", "A file holds what its format does not allow."),
    ("5", "A valid input asks for something that Verbatim lacks."),
    ("6", "A stated limit would be exceeded."),
    ("7", "GPU, driver or a CUDA library is missing, wrong or fails."),
    ("8", "Two things that must agree do not: digests, bits; of comparisons, something differs."),
]
BASH = """\
# Written by tools/manual.py from the program's help.
_verbatim() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options=
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '@COMMANDS@ help version' -- "$word"))
    return
  fi
  case ${COMP_WORDS[1]}$before in
@VALUES@
  esac
  case ${COMP_WORDS[1]} in
@OPTIONS@
  esac
  case $word in
    -*) COMPREPLY=($(compgen -W "$options --help" -- "$word"));;
    *) COMPREPLY=($(compgen -f -- "$word"));;
  esac
}
complete -o filenames -F _verbatim verbatim
"""


class Option:
    def __init__(self, names, argument, text):
        self.names, self.argument, self.text = names, argument, text


class Command:
    """name, summary in a line, usage: [lines], blocks: [("text", str) | ("lines", [str]) | ("options", [Option])]."""

    def __init__(self, name, what, text):
        self.name, self.what = name, what
        usage, rest = split_usage(text)
        self.usage, self.blocks = usage, read_blocks(rest)
        listed = [option for kind, block in self.blocks if kind == "options" for option in block]
        known = {name for option in listed for name in option.names}
        only_in_usage = {}
        for line in usage:
            for name, argument in USAGE_OPTION.findall(line):
                if name not in known and (argument or name not in only_in_usage):
                    only_in_usage[name] = Option([name], argument or None, "")
        self.options = listed + list(only_in_usage.values())


def split_usage(text):
    lines = text.split("\n")
    if not lines[0].startswith("usage: "):
        raise SystemExit("manual.py: expected a help that begins with its usage, found %r" % lines[0])
    end = next(i for i, line in enumerate(lines) if i and not line.startswith(" "))
    return [lines[0][len("usage: "):]] + [line.strip() for line in lines[1:end]], lines[end:]


def read_options(line):
    found = list(OPTION.finditer(line))
    options = []
    for match, following in zip(found, found[1:] + [None]):
        names = [name for name in match.group(1, 2) if name]
        options.append(Option(names, match.group(3), line[match.end():following.start() if following else None].strip()))
    for option, following in zip(options[-2::-1], options[:0:-1]):
        option.text = option.text or following.text
    return options


def read_blocks(lines):
    blocks = []

    def put(kind, item, fresh=False):
        if fresh or not blocks or blocks[-1][0] != kind:
            blocks.append((kind, []))
        blocks[-1][1].append(item)

    after_blank = True
    for line in lines:
        if not line.strip():
            after_blank = True
            continue
        options = read_options(line) if re.match(r"  -", line) else []
        if options:
            for option in options:
                put("options", option)
        elif re.match(r" {12,}\S", line) and blocks and blocks[-1][0] == "options" and not after_blank:
            option = blocks[-1][1][-1]
            option.text = (option.text + " " + line.strip()).strip()
        elif line.startswith(" "):
            put("lines", line, after_blank)
        else:
            put("text", line, after_blank)
        after_blank = False
    return blocks


def ask(program, *words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout


def commands(program):
    table = re.findall(r"^  ([\w-]+) +(\S.*)$", ask(program, "help"), re.M)
    return [Command(name, what, ask(program, name, "--help")) for name, what in table if name not in ("version", "help")]


def environment(program):
    return re.findall(r"^(VERBATIM_[A-Z_]+): (.*)$", ask(program, "help"), re.M)


# === The manual page ========================================================================================================


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def filled(text):
    return [roff(line) for line in textwrap.wrap(text, 72, break_long_words=False, break_on_hyphens=False)]


def page_of_command(command):
    lines = [".SS verbatim " + roff(command.name), roff(command.what[:1].upper() + command.what[1:]) + ".", ".PP", ".nf"]
    lines += [roff(line) for line in command.usage] + [".fi"]
    for kind, block in command.blocks:
        if kind == "text":
            lines += [".PP", *filled(" ".join(block))]
        elif kind == "lines":
            lines += [".PP", ".nf", *map(roff, block), ".fi"]
        for option in block if kind == "options" else []:
            argument = " \\fI%s\\fP" % roff(option.argument) if option.argument else ""
            lines += [".TP", ", ".join("\\fB%s\\fP" % roff(name) for name in option.names) + argument, *(filled(option.text) or ["\\&"])]
    return lines


def manual_page(program):
    version = ask(program, "version").split(",")[0]
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", os.path.getmtime(program)))))
    found = commands(program)
    lines = ['.\\" Written by tools/manual.py from the program\'s help.', '.TH VERBATIM 1 %s "%s" "Verbatim"' % (date, version), ".SH NAME",
             "verbatim \\- deterministic inference of MLA language models", ".SH SYNOPSIS", ".B verbatim", ".I COMMAND", "\\&...", ".br",
             ".B verbatim", "help | version", ".SH DESCRIPTION",
             *filled("Runs a language model so that the output depends only on the model and the request: batching, load, caching, "
                     "restarts and the machine never change a bit.")]
    for command in found:
        lines += [".TP", "\\fB%s\\fP" % roff(command.name), roff(command.what)]
    lines.append(".SH COMMANDS")
    for command in found:
        lines += page_of_command(command)
    lines.append(".SH EXIT STATUS")
    for code, what in EXITS:
        lines += [".TP", code, *filled(what)]
    lines.append(".SH ENVIRONMENT")
    for name, what in environment(program):
        lines += [".TP", "\\fB%s\\fP" % name, roff(what)]
    lines += [".TP", "\\fBXDG_CACHE_HOME\\fP", "Its folder verbatim keeps compiled kernels; without it, ~/.cache/verbatim."]
    return "\n".join(lines) + "\n"


# === Completions ============================================================================================================


def words_of(option):
    """(words that an argument may be, whether it may be a file name)"""
    parts = (option.argument or "").split("|")
    words = WORDS.get(option.names[-1], [part for part in parts if re.fullmatch("[a-z]+", part)])
    return words, any(re.search("FILE|DIR|PLAN|TRACE|RECEIPT|PROFILE|\\.json", part) for part in parts)


def is_file_command(command):
    return bool(re.search("FILE|DIR|PLAN|TRACE|RECEIPT| A B", command.usage[0]))


def bash(found):
    values, options = [], []
    for command in found:
        options.append("    %s) options='%s';;" % (command.name, " ".join(name for option in command.options for name in option.names)))
        for option in command.options:
            if option.argument:
                words, is_file = words_of(option)
                does = ["COMPREPLY=($(compgen -W '%s' -- \"$word\"));" % " ".join(words)] * bool(words)
                does += ["COMPREPLY+=($(compgen -f -- \"$word\"));"] * is_file + ["return;;"]
                values.append("    %s) %s" % ("|".join(command.name + name for name in option.names), " ".join(does)))
    names = " ".join(command.name for command in found)
    return BASH.replace("@COMMANDS@", names).replace("@VALUES@", "\n".join(values)).replace("@OPTIONS@", "\n".join(options))


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def brief(option):
    """The first words of an option's meaning, without characters that are special to shells."""
    text = re.split(r"[;:]", option.text)[0]
    return re.sub(r"[\[\]\\'\"]", "", text)[:70].strip()


def zsh(found):
    lines = ["#compdef verbatim", "# Written by tools/manual.py from the program's help.", "_verbatim() {", "  local -a commands=("]
    lines += ["    " + quoted("%s:%s" % (command.name, command.what.replace(":", ","))) for command in found]
    lines += ["  )", "  if (( CURRENT == 2 )); then", "    _describe command commands", "    return", "  fi",
              "  shift words", "  (( CURRENT-- ))", "  case $words[1] in"]
    for command in found:
        lines.append("    %s) _arguments \\" % command.name)
        for option in command.options:
            words, is_file = words_of(option)
            action = "(%s)" % " ".join(words) if words and not is_file else "_files" if is_file else " "
            value = ":%s:%s" % (re.sub(r"[:\[\]]", " ", option.argument).strip(), action) if option.argument else ""
            lines += ["      %s \\" % quoted("*%s[%s]%s" % (name, brief(option), value)) for name in option.names]
        lines += ["      '*:file:%s'" % ("_files" if is_file_command(command) else " "), "      ;;"]
    lines += ["  esac", "}", "_verbatim \"$@\""]
    return "\n".join(lines) + "\n"


def fish(found):
    names = " ".join(command.name for command in found)
    lines = ["# Written by tools/manual.py from the program's help."]
    lines += ["complete -c verbatim -f -n %s -a %s -d %s" % (quoted("not __fish_seen_subcommand_from " + names), command.name,
                                                           quoted(command.what)) for command in found]
    for command in found:
        condition = quoted("__fish_seen_subcommand_from " + command.name)
        for option in command.options:
            words, is_file = words_of(option)
            kinds = " ".join("-l " + name[2:] if name.startswith("--") else "-s " + name[1:] for name in option.names)
            value = (" -x" if not is_file else " -r") if option.argument else ""
            value += " -a %s" % quoted(" ".join(words)) if words else ""
            lines.append("complete -c verbatim -n %s %s%s -d %s" % (condition, kinds, value, quoted(brief(option))))
    return "\n".join(lines) + "\n"


def texts(program):
    """name of each file -> its text."""
    found = commands(program)
    return {"verbatim.1": manual_page(program), "verbatim.bash": bash(found), "_verbatim": zsh(found), "verbatim.fish": fish(found)}


def main():
    if len(sys.argv) != 3:
        raise SystemExit("usage: manual.py PROGRAM FOLDER")
    os.makedirs(sys.argv[2], exist_ok=True)
    for name, text in texts(os.path.abspath(sys.argv[1])).items():
        with open(os.path.join(sys.argv[2], name), "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
