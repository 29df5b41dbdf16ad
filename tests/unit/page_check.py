"""A report's page, read twice: by an XML parser, which accepts only well-formed text, and by an HTML parser, as browsers use.

page_check.py PAGE: prints its counts or, on a line that begins with "bad", why the page is not valid. Knows the elements and attributes of
a report; any other, such as markup from a text that was not escaped, is bad.
"""
import html.parser
import re
import sys
import xml.parsers.expat

ELEMENTS = set("""
html head meta title style body div header p h1 h2 h3 b bdi small span br code pre main section dl dt dd table caption thead tbody tr th td
ul li details summary footer svg defs pattern rect line circle text path
""".split())
ATTRIBUTES = set("""
lang xmlns charset http-equiv content name class id style scope tabindex data-name role aria-hidden width height x y x1 x2 y1 y2 r cx cy rx
d viewbox fill opacity overflow patternunits patterntransform preserveaspectratio text-anchor vector-effect
""".split())
VOID = {"meta", "br"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.count, self.letters = [], {}, []

    def handle_starttag(self, tag, attributes):
        self.note(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.note(tag, attributes)

    def note(self, tag, attributes):
        if tag not in ELEMENTS:
            raise ValueError("element " + tag)
        self.count[tag] = self.count.get(tag, 0) + 1
        for name, value in attributes:
            if name not in ATTRIBUTES:
                raise ValueError("attribute " + name)
            if name in ("x", "x1", "x2", "cx", "width") and re.fullmatch(r"-?[\d.]+%", value) and not -1 <= float(value[:-1]) <= 101:
                raise ValueError("%s=%s lies outside" % (name, value))
            if re.search(r"nan|inf", value or "") and name != "class":
                raise ValueError("%s=%s is no number" % (name, value))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            raise ValueError("end of " + tag)

    def handle_data(self, data):
        self.letters.append(data)


def contrasts(text):
    """The least contrast, as WCAG defines it, of letters and marks against their background, in the light and in the dark colours."""
    def light(colour):
        parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(c * w for c, w in zip(linear, (0.2126, 0.7152, 0.0722)))

    for colours in re.findall(r":root\{([^}]*)\}", text):
        named = dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", colours))
        for ground, letters in [("paper", "ink soft right wrong limit"), ("panel", "ink soft")]:
            for name in letters.split():
                pair = sorted((light(named[ground]), light(named[name])))
                yield (pair[1] + 0.05) / (pair[0] + 0.05)


def main():
    try:
        with open(sys.argv[1], "rb") as file:
            data = file.read()
        parser = xml.parsers.expat.ParserCreate()
        parser.Parse(data, True)
        page = Page()
        text = data.decode("utf-8")
        page.feed(text)
        page.close()
        if page.open:
            raise ValueError("not ended: " + page.open[-1])
        found = list(contrasts(text))
        if len(found) != 14 or min(found) < 4.5:
            raise ValueError("contrast %s" % ["%.2f" % c for c in found])
        hidden = re.search("[^\n\t\x20-\x7e\u00a0-\U0010ffff]|[\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]", text)
        if hidden:
            raise ValueError("hidden character U+%04X" % ord(hidden.group(0)))
        if re.search(r"https?://(?!www\.w3\.org/1999/xhtml)", re.sub(r"<bdi>.*?</bdi>|<pre.*?</pre>", "", text, flags=re.S)):
            raise ValueError("an address")
    except (ValueError, xml.parsers.expat.ExpatError) as error:
        print("bad:", error)
        return
    print(" ".join("%s=%d" % (tag, page.count.get(tag, 0)) for tag in ("tr", "circle", "path", "svg", "details")))
    print(re.sub(r"[\s\u00a0]+", " ", " ".join(page.letters)))


main()
