"""`on_ranks.py`, with what it imports loaded once for all ranks."""

from importlib import import_module

from hpctrip.ranks.start import share_start

if __name__ == "__main__":
    share_start(lambda: import_module("on_ranks"))
    import_module("on_ranks").main()
