"""The process that fuzzes one target: `python -m tools.fuzz.child NAME ...`. A crash ends only this
process. Its last line reports the results as JSON."""

import argparse
from pathlib import Path

from tools.fuzz.targets import TARGETS
from tools.fuzz.watch import Watch, limit_memory, printed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=list(TARGETS))
    parser.add_argument("--folder", type=Path, required=True, help="where inputs lie as they run")
    parser.add_argument("--failures", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=Path, help="run this input alone")
    options = parser.parse_args()
    target = TARGETS[options.target]
    watch = Watch(target, options.folder, options.failures)
    limit_memory()
    if options.replay is not None:
        print(watch.run(options.replay.read_bytes()))
    else:
        watch.run_for(options.seconds, target.seeds(), options.seed)
    print(printed(watch.tally))


if __name__ == "__main__":
    main()
