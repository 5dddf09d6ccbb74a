"""What an explorable shows when it is drawn."""

from __future__ import annotations

from xml.etree import ElementTree

from rope_lessons.figures import Explorable


class Drawn:
    """The parts of its picture, by their class."""

    def __init__(self, shown: Explorable):
        self.every = list(ElementTree.fromstring(shown.svg).iter())
        self.parts = {part.get("class"): part for part in self.every}

    def text(self, name: str) -> str:
        return self.parts[name].text or ""

    def outlines(self, name: str) -> list[str]:
        """Those of a path, each from where it begins."""
        return self.parts[name].attrib["d"].split("M")[1:]
