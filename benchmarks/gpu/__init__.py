"""The parts of `gpu_day.py`: what is to be shown and measured on a GPU, and what runs it in time."""
