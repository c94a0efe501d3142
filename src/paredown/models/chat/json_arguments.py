"""JsonArguments: reads the arguments of a call, a JSON object, and tells them as they come."""

from paredown.models.chat.arriving_text import ArrivingText, Reading
from paredown.models.chat.json_scan import JsonScan
from paredown.models.chat.turn_log import DamagedCallError, TurnLog


class JsonArguments:
    """`ends` are the markers behind a call: what is no JSON is read up to the first of them."""

    def __init__(self, text: ArrivingText, log: TurnLog, ends: tuple[str, ...]) -> None:
        self._text = text
        self._log = log
        self._ends = ends

    def read(self, name: str) -> Reading:
        """Reads the object that is next, as the arguments of a call of the tool `name`. From its
        first character on the call is certain, and the text goes to the client as it comes. If it
        then turns out to be no JSON, it was sent all the same: the rest of the call follows as it
        is, and the client sees arguments that do not parse, whether it streams or not. Raises
        DamagedCallError where no object is next."""
        if (yield from self._text.peek()) != "{":
            raise DamagedCallError
        self._log.start_call(name)
        scan = JsonScan()
        while True:
            start = self._text.at
            self._text.at = scan.read(self._text.text, start)
            self._log.arguments(self._text.text[start : self._text.at])
            self._text.hold()
            if scan.is_whole or self._text.is_whole:
                return
            if scan.is_damaged:
                yield from self._damaged()
                return
            yield

    def _damaged(self) -> Reading:
        """Tells everything up to a marker behind the call as its arguments."""
        text = self._text
        while True:
            found = [at for end in self._ends if (at := text.text.find(end, text.at)) >= 0]
            stop = min(found) if found else len(text.text)
            if not found and not text.is_whole:
                stop -= held_at_end(text.text[text.at :], self._ends)
            self._log.arguments(text.text[text.at : stop])
            text.at = stop
            text.hold()
            if found or text.is_whole:
                return
            yield


def held_at_end(text: str, markers: tuple[str, ...]) -> int:
    """Returns how many characters at the end of `text` may be the beginning of a marker."""
    most = min(len(text), max(map(len, markers), default=1) - 1)
    firsts = {marker[0] for marker in markers}
    for num in range(most, 0, -1):
        # Nearly all texts end in none of these characters.
        if text[-num] in firsts and any(marker.startswith(text[-num:]) for marker in markers):
            return num
    return 0
