"""An analysed trace as a Chrome trace, for Perfetto."""
