# SPDX-License-Identifier: Apache-2.0
"""python -m gpushare_patch enable|disable|status"""
import argparse
import sys

from gpushare_patch import environment


def main():
    parser = argparse.ArgumentParser(prog="python -m gpushare_patch", description="Make the programs of this Python environment "
                                     "share the GPU with others, or undo that.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("enable", help="patch the interpreter and programs of this environment")
    commands.add_parser("disable", help="restore them, byte for byte; run this before `pip uninstall gpushare-patch`")
    commands.add_parser("status", help="show what is patched and whether the daemon runs")
    chosen = parser.parse_args()
    try:
        return getattr(environment, chosen.command)()
    except (environment.Refused, OSError) as error:
        print(f"gpushare_patch: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
