"""What tests know of pages: they are whole, and ask for nothing from elsewhere."""

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

_VOID = {"meta", "br", "img", "link", "hr", "input"}


class _Nesting(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        is_shown = "svg" in self.open or not {"style", "title"} & set(self.open)
        if self.open and is_shown:
            self.text.append(data)


def checked(page: str) -> str:
    """Return the text of a page, after a look at it: tags are closed, pictures are XML, nothing is fetched."""
    parser = _Nesting()
    parser.feed(page)
    parser.close()
    assert not parser.open
    for picture in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ET.fromstring(picture)
    assert not re.findall(r"(?:src|href)=\"(?!data:)|url\(|@import|<script|<link", page)
    return " ".join(" ".join(parser.text).split())
