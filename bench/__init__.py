"""Measure speed (`python -m bench`), tests (`bench.mutation`) and judges; draw the pictures."""
