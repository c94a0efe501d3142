"""The exception that ends long work when the process is told to stop."""

import signal


class StoppedError(BaseException):
    """Derives from BaseException: like KeyboardInterrupt, nothing may handle it as a failure."""

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number
        super().__init__(f"stopped by {signal.Signals(number).name}")
