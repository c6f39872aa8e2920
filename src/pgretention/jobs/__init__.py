"""The jobs pgretention ships, one file each: every one of them is a value of `Policy`."""
