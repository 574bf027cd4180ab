"""The commands of `tane study`, one file each: options, table and plot. `model/studies` computes what they show."""
