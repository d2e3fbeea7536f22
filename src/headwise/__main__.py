"""Entry point of the `headwise` command and of `python -m headwise`.

Little is imported before `main` runs, so that Ctrl-C works from the start.
"""

import sys

STOPPED = 130  # 128 + SIGINT


def main() -> None:
    """Run the command named in `sys.argv`."""
    try:
        from headwise.cli import run_cli

        run_cli()
    except KeyboardInterrupt:
        print("headwise: stopped", file=sys.stderr)
        sys.exit(STOPPED)


if __name__ == "__main__":
    main()
