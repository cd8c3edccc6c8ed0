"""See `hvd.tensorflow.data`."""
