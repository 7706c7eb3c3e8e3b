"""The model on any measure: head families, attention, objectives. Knows no grid, no clock, no file."""
