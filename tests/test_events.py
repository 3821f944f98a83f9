"""Events are told to those who want them, and made for no one else."""

from __future__ import annotations

from bascule.core.events import Events
from bascule.hookspecs import CallEnded, Event, HostChanged, ToolsChanged

CHANGED = HostChanged("echo", "ready", "ready", None)
ENDED = CallEnded("echo.say", "1", None, None, 0.1)


async def test_a_listener_gets_the_kinds_that_it_named_and_no_other() -> None:
    events = Events()
    async with events.listen(HostChanged, ToolsChanged) as heard:
        events.publish(ENDED)
        events.publish(CHANGED)
        assert await anext(heard) == CHANGED


async def test_a_listener_that_names_no_kind_gets_all() -> None:
    events = Events()
    async with events.listen() as heard:
        events.publish(ENDED)
        events.publish(CHANGED)
        assert [await anext(heard), await anext(heard)] == [ENDED, CHANGED]


async def test_an_event_is_wanted_as_long_as_someone_listens_to_its_kind() -> None:
    events = Events()
    assert not events.wanted(CallEnded)
    async with events.listen(HostChanged):
        assert events.wanted(HostChanged)
        assert not events.wanted(CallEnded)
        async with events.listen():
            assert events.wanted(CallEnded)
        assert not events.wanted(CallEnded)
    assert not events.wanted(HostChanged)


async def test_an_observer_wants_every_event() -> None:
    told: list[Event] = []

    class Keeps:
        name = "keeps"

        def __call__(self, event: Event) -> None:
            told.append(event)

    events = Events([Keeps()])
    assert events.wanted(CallEnded)
    events.publish(ENDED)
    assert told == [ENDED]
