"""wgmma_check.py - finds registers that a kernel's PTX touches while an asynchronous multiplication (wgmma) still uses them.

From wgmma.mma_async to the wgmma.wait_group that covers it the operand registers may not be written and the accumulators neither
read nor written, except by further wgmma. The compiler does not follow this rule: it treats an operand as dead once the instruction has
been issued, so it may load the next operand into the same registers, and the result depends on timing. Read next: kernelc.py.
"""
import re

NO_RESULT = re.compile(r"(?:@!?%\w+\s+)?(?:st|bra|brx|bar|barrier|red|ret|exit|trap|fence|membar|prefetch|discard|applypriority|cp|wgmma|"
                       r"mbarrier\.(?:init|inval|arrive|expect)|griddepcontrol|setmaxnreg|nanosleep|elect|tensormap)\b")
GROUPS_MAX = 8
REGISTER = re.compile(r"%(?:f|r|rd|rs|h|b)\d+\b")


def statements(ptx):
    """("label", name), ("code", text) of the one function; labels inside an inline block are local to it and left out."""
    body = re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx[ptx.index(".entry"):], flags=re.S)
    body = body[body.index("{") + 1:]
    for match in re.finditer(r"\s*(?:(\$?\w+):|([^;:{}]*(?:\{[^{};]*\}[^;:{}]*)*);|[{}])", body):
        if match.group(1) and match.group(1).startswith("$"):
            yield "label", match.group(1)
        elif match.group(2) and match.group(2).strip() and not match.group(2).strip().startswith("."):
            yield "code", match.group(2).strip()


def blocks(ptx):
    """[(code, indices of the blocks that may follow)]"""
    found, names, code = [], {}, []
    for kind, text in statements(ptx):
        if kind == "label":
            found.append(code)
            names[text], code = len(found), []
        else:
            code.append(text)
            if re.match(r"(?:@!?%\w+\s+)?bra\S*\s+\$", text) or re.match(r"(?:ret|exit)\b", text):
                found.append(code)
                code = []
    found.append(code)
    graph = []
    for i, code in enumerate(found):
        last = code[-1] if code else ""
        target = re.match(r"(@!?%\w+\s+)?bra\S*\s+(\$\w+)", last)
        after = [] if target and not target.group(1) or re.match(r"(?:ret|exit)\b", last) else [i + 1]
        after += [names[target.group(2)]] if target else []
        graph.append((code, [j for j in after if j < len(found)]))
    return graph


def registers(text):
    return frozenset(REGISTER.findall(text))


def step(text, groups, report):
    """groups: the registers used by each committed group of multiplications, oldest first, then the open group; each {(register, is
    accumulator)}."""
    if "wgmma.mma_async" in text:
        parts = re.findall(r"\{([^}]*)\}", text)
        sums = registers(parts[0])
        operands = registers(parts[1]) if len(parts) > 1 else frozenset()
        return groups[:-1] + (groups[-1] | {(r, True) for r in sums} | {(r, False) for r in operands},)
    if "wgmma.commit_group" in text:  # a loop may commit endlessly: the oldest two count as one
        groups = (groups[0] | groups[1],) + groups[2:] if len(groups) > GROUPS_MAX else groups
        return groups + (frozenset(),)
    wait = re.search(r"wgmma\.wait_group\S*\s+(\d+)", text)
    if wait:
        kept = int(wait.group(1))
        return groups[max(0, len(groups) - 1 - kept):-1] + groups[-1:]
    busy = frozenset().union(*groups)
    if busy:
        written = registers(re.sub(r"^(?:@!?%\w+\s+)?\S+\s+", "", text).split(",")[0] if "{" not in text.split(",")[0] else
                            re.search(r"\{([^}]*)\}", text).group(1)) if not NO_RESULT.match(text) else frozenset()
        for register in sorted(registers(text)):
            if (register, True) in busy:
                report.add("%s is used while a multiplication adds to it: %s" % (register, text))
            elif (register, False) in busy and register in written:
                report.add("%s is written while a multiplication reads it: %s" % (register, text))
    return groups


def joined(a, b):
    """Joins two paths to a block: their open groups are united, and committed groups are matched from the newest."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    padded = (frozenset(),) * (len(longer) - len(shorter)) + shorter
    return tuple(x | y for x, y in zip(longer, padded))


def hazards(ptx):
    """Sentences, one for each register touched too early; none for a kernel without wgmma."""
    if "wgmma.mma_async" not in ptx:
        return []
    graph, before, report = blocks(ptx), {0: (frozenset(),)}, set()
    waiting = [0]
    while waiting:
        i = waiting.pop()
        groups = before[i]
        for text in graph[i][0]:
            groups = step(text, groups, report)
        while len(groups) > 1 and not groups[0]:
            groups = groups[1:]
        for j in graph[i][1]:
            new = joined(before[j], groups) if j in before else groups
            if before.get(j) != new:
                before[j] = new
                waiting.append(j)
    return sorted(report)
