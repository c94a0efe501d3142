"""Questions that one of a few tools answers, and those tools."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ToolCase:
    """A question, the tool that answers it, and the arguments that the question gives."""

    question: str
    tool: str
    arguments: Mapping[str, object]


def get_weather(city: str) -> str:
    """Get the current weather of a city."""
    return f"{city}: 18 degrees, light rain"


def add(a: int, b: int) -> str:
    """Add two whole numbers."""
    return str(a + b)


def send_message(to: str, text: str) -> str:
    """Send a text message to a person."""
    return f"sent to {to}: {text}"


def search_books(author: str, max_results: int) -> str:
    """Search the library for books by an author."""
    return f"{max_results} books by {author} found"


def set_alarm(hour: int, minute: int) -> str:
    """Set an alarm at an hour (0 to 23) and a minute."""
    return f"alarm set for {hour:02}:{minute:02}"


FUNCTIONS: tuple[Callable[..., str], ...] = (
    get_weather,
    add,
    send_message,
    search_books,
    set_alarm,
)
CASES = (
    ToolCase(
        question="What is the weather in Paris?", tool="get_weather", arguments={"city": "Paris"}
    ),
    ToolCase(
        question="Does it rain in Tokyo right now?", tool="get_weather", arguments={"city": "Tokyo"}
    ),
    ToolCase(question="How warm is it in Oslo?", tool="get_weather", arguments={"city": "Oslo"}),
    ToolCase(question="What is 4711 plus 28?", tool="add", arguments={"a": 4711, "b": 28}),
    ToolCase(question="Add 17 and 25.", tool="add", arguments={"a": 17, "b": 25}),
    ToolCase(
        question="Send Anna a message that says: I am late.",
        tool="send_message",
        arguments={"to": "Anna"},
    ),
    ToolCase(
        question="Tell Bob by text message to bring milk.",
        tool="send_message",
        arguments={"to": "Bob"},
    ),
    ToolCase(
        question="Find at most 3 books by Jane Austen in the library.",
        tool="search_books",
        arguments={"author": "Jane Austen", "max_results": 3},
    ),
    ToolCase(
        question="Wake me at 6:30 in the morning.",
        tool="set_alarm",
        arguments={"hour": 6, "minute": 30},
    ),
    ToolCase(
        question="Set an alarm for 21:15.", tool="set_alarm", arguments={"hour": 21, "minute": 15}
    ),
)
