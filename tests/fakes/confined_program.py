"""A program for a ConfinedProcess that follows commands."""

import os
import signal
import time
from collections.abc import Callable


def make_program(setup: bytes) -> Callable[[bytes], bytes]:
    """Returns a handler that appends the setup to each answer."""

    def answer(request: bytes) -> bytes:
        what, *numbers = request.decode().split()
        if what == "spin":
            while True:
                pass
        if what == "take":
            return bytes(int(numbers[0]))
        if what == "raise":
            raise ValueError("no")
        if what == "exit":
            os._exit(int(numbers[0]))
        if what == "wait":
            time.sleep(float(numbers[0]))
            return b"%d" % os.getpriority(os.PRIO_PROCESS, 0)
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return request + setup

    return answer
