"""Measure the speed (`python -m bench`) and the tests (`bench.mutation`), draw the pictures."""
