"""Loading: model files and downloads, checked before anything is believed."""
