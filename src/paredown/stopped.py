"""The exception that ends long work when the process is told to stop."""

import signal


class StoppedError(BaseException):
    """Not an Exception: like KeyboardInterrupt, nothing on the way may take it for a failure."""

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number
        super().__init__(f"stopped by {signal.Signals(number).name}")
