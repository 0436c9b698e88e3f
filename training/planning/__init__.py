"""What a recipe takes before it is run, memory, hours and money; see `art-e train plan`."""
