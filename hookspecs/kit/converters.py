"""The suite for converters."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from ..errors import BasculeError, ConversionUnsupported
from ..tools import JsonObject, ToolDefinition, ToolResult
from .faults import Fault, NotApplicable, words
from .suite import Suite, check
from .values import OBJECTS, explore, results, tools


class ConverterSuite(Suite):
    """Checks one converter: round trips with values that hypothesis makes up, and garbage.

    ``converter`` is the converter. Where it reads calls, say in ``write_call`` how one looks in the dialect.
    ``lossy`` names what the dialect can't hold: some of ``title``, ``output_schema``, ``description``,
    ``parameters`` of a tool, ``failed`` of a result.

    Example::

        class TestGemini(ConverterSuite):
            converter = GeminiConverter()
    """

    converter: Any = None
    lossy: frozenset[str] = frozenset()

    def write_call(self, name: str, arguments: JsonObject) -> JsonObject | None:
        """How the dialect writes a call; ``None`` where it has none."""
        return None

    def subject_name(self) -> str:
        return f"converter {getattr(self.converter, 'dialect', type(self).__name__)!r}"

    def _do(self, direction: str, value: Any) -> Any:
        """Convert; raise ``NotApplicable`` where the direction is not there, ``Fault`` where it breaks."""
        before = copy.deepcopy(value)
        try:
            converted = getattr(self.given("converter"), direction)(value)
        except ConversionUnsupported:
            raise NotApplicable(f"it has no {direction}") from None
        except Exception as error:  # noqa: BLE001 - it is what is judged
            raise Fault(f"{direction} raises {words(error)} for {_short(value)}") from None
        if value != before:
            raise Fault(f"{direction} changes what it is given: {_short(before)}")
        if hasattr(converted, "__await__"):
            converted.close()
            raise Fault(f"{direction} is a coroutine; converters are synchronous")
        return converted

    def _written(self, direction: str, value: Any) -> Any:
        written = self._do(direction, value)
        try:
            again = json.loads(json.dumps(written, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise Fault(f"{direction} writes what is no JSON: {words(error)}") from None
        if not isinstance(again, dict):
            raise Fault(f"{direction} writes a {type(written).__name__}; a JSON object is expected")
        if written != self._do(direction, value):
            raise Fault(f"{direction} writes another thing each time")
        return again

    @check
    def test_a_tool_is_written_as_json_under_a_name_of_its_own(self, folder: Path) -> None:
        def one(tool: ToolDefinition, other: ToolDefinition) -> None:
            first = self._written("write_tool", tool)
            text = json.dumps(first, ensure_ascii=False)
            if tool.name not in text and tool.alias not in text:
                raise Fault(f"write_tool writes neither the name nor the alias of {tool.name}")
            if tool.name != other.name and first == self._written("write_tool", other):
                raise Fault(
                    f"write_tool writes {tool.name} and {other.name} alike: a call of one would reach the other"
                )

        explore(one, tools(), tools())

    @check
    def test_a_tool_that_was_written_reads_as_what_it_was(self, folder: Path) -> None:
        def one(tool: ToolDefinition) -> None:
            written = self._written("write_tool", tool)
            read = self._do("read_tool", written)
            if read.name not in (tool.name, tool.alias):
                raise Fault(f"a tool written as {tool.name} (alias {tool.alias}) is read as {read.name}")
            for name in ("description", "parameters", "title", "output_schema"):
                if name not in self.lossy and getattr(read, name) != getattr(tool, name):
                    raise Fault(f"{name} is lost between write_tool and read_tool: {_short(getattr(tool, name))}")
            self._kept(read.origin, written, "read_tool")

        explore(one, tools())

    @check
    def test_a_result_that_was_written_reads_as_what_it_was(self, folder: Path) -> None:
        def one(result: ToolResult) -> None:
            written = self._written("write_result", result)
            read = self._do("read_result", written)
            if "failed" not in self.lossy and read.failed != result.failed:
                raise Fault("whether the tool failed is lost between write_result and read_result")
            if read.text != result.text:
                raise Fault(f"text is lost between write_result and read_result: {_short(result.text)}")
            if isinstance(result.output, dict) and read.output != result.output:
                raise Fault(f"the structured output is lost between write_result and read_result: {_short(result)}")
            self._kept(read.origin, written, "read_result")

        explore(one, results())

    def _kept(self, origin: Any, foreign: Any, direction: str) -> None:
        if origin is None or origin.dialect != self.converter.dialect or origin.value != foreign:
            raise Fault(f"{direction} does not keep what came, whole, in origin")

    @check
    def test_a_result_is_written_as_json(self, folder: Path) -> None:
        def one(result: ToolResult) -> None:
            written = self._written("write_result", result)
            told = json.dumps(written, ensure_ascii=False)
            if isinstance(result.output, dict):  # the texts beside it say the same once more, and may be left out
                return
            for block in result.content:
                if block["text"].isascii() and block["text"].isalnum() and block["text"] not in told:
                    raise Fault(f"write_result loses text: {_short(block['text'])}")

        explore(one, results())

    @check
    def test_a_result_that_failed_does_not_look_as_one_that_did_not(self, folder: Path) -> None:
        if "failed" in self.lossy:
            raise NotApplicable("the dialect can't say that a tool failed")

        def one(result: ToolResult) -> None:
            other = ToolResult(result.output, result.content, not result.failed)
            if self._written("write_result", result) == self._written("write_result", other):
                raise Fault("write_result writes a result that failed and one that did not alike")

        explore(one, results(), examples=20)

    @check
    def test_what_came_in_this_dialect_goes_out_as_it_came(self, folder: Path) -> None:
        def one(result: ToolResult) -> None:
            foreign = self._written("write_result", result)
            if self._written("write_result", self._do("read_result", foreign)) != foreign:
                raise Fault(f"a result that came in this dialect does not go out as it came: {_short(foreign)}")

        explore(one, results())

    @check
    def test_a_call_reads_as_what_was_called(self, folder: Path) -> None:
        def one(tool: ToolDefinition, arguments: JsonObject) -> None:
            foreign = self.write_call(tool.alias, arguments)
            if foreign is None:
                raise NotApplicable("the suite's write_call says that the dialect has no calls")
            name, read = self._do("read_call", foreign)
            if name not in (tool.alias, tool.name):
                raise Fault(f"a call of {tool.alias} is read as one of {name}")
            if read != arguments:
                raise Fault(f"read_call alters the arguments {_short(arguments)} to {_short(read)}")

        explore(one, tools(), OBJECTS)

    @check
    def test_garbage_is_refused_in_words(self, folder: Path) -> None:
        converter = self.given("converter")

        def one(foreign: JsonObject) -> None:
            for direction in ("read_tool", "read_result", "read_call"):
                try:
                    answer = getattr(converter, direction)(foreign)
                    if hasattr(answer, "__await__"):
                        answer.close()
                except BasculeError:
                    continue
                except Exception as error:  # noqa: BLE001 - it is what is judged
                    raise Fault(
                        f"{direction} raises {words(error)} for {_short(foreign)}; raise a BasculeError"
                    ) from None

        keys = ("name", "content", "arguments", "input", "function", "inputSchema", "parameters", "type", "isError")
        for key in keys:
            for value in (None, 7, "text", [], [None], {}, {"name": 7}, [{"type": 7}]):
                one({key: value})
                one({"name": "x", key: value})
        explore(one, OBJECTS)


def _short(value: object) -> str:
    text = repr(value)
    return text[:120] + ("…" if len(text) > 120 else "")
