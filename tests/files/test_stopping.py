"""Signals that stop the process, and steps that they don't interrupt."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from vidrestore.files import stopping
from vidrestore.files.stopping import DELAYED, STOPS, delayed_signals, stops_cleanly

pytestmark = pytest.mark.skipif(
    os.name == "nt", reason="Windows ends a process at a raised SIGTERM"
)


@pytest.mark.parametrize("place", range(2 * len(DELAYED)))
@pytest.mark.parametrize("number", STOPS)
def test_a_signal_between_two_handlers_leaves_all_as_they_were(
    monkeypatch, place, number
):
    calls, install = [], signal.signal

    def interrupted(*arguments):
        before = install(*arguments)
        calls.append(arguments)
        if len(calls) == place + 1:
            signal.raise_signal(number)
        return before

    def handlers():
        return [signal.getsignal(number) for number in DELAYED]

    with pytest.raises(KeyboardInterrupt), stops_cleanly():
        before = handlers()
        monkeypatch.setattr(stopping.signal, "signal", interrupted)
        try:
            with delayed_signals():
                pass
        finally:
            monkeypatch.undo()
            assert handlers() == before


@pytest.mark.parametrize("place", range(2 * len(STOPS)))
def test_a_signal_as_the_command_begins_or_ends_leaves_all_handlers_as_they_were(
    monkeypatch, place
):
    calls, install = [], signal.signal
    before = [signal.getsignal(number) for number in STOPS]

    def interrupted(*arguments):
        calls.append(install(*arguments))
        if len(calls) == place + 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(stopping.signal, "signal", interrupted)
    with contextlib.suppress(KeyboardInterrupt), stops_cleanly():
        pass
    assert [signal.getsignal(number) for number in STOPS] == before


def test_an_error_that_c_code_makes_of_an_interruption_is_one():
    with pytest.raises(KeyboardInterrupt), stops_cleanly():
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise ValueError("could not determine the shape") from None


def test_an_interruption_that_a_destructor_loses_comes_again(capsys):
    class Loses:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt), stops_cleanly():
        for _ in range(3):
            Loses()
            time.sleep(60)
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="needs a timer that sends a signal"
)
def test_a_test_that_waits_too_long_fails():
    """By the alarm of conftest.py, which is set here to less."""
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 60
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(TimeoutError, match="longer than its limit"):
        subprocess.run(
            [sys.executable, "-c", "import time; time.sleep(60)"], check=True
        )
