"""The commands of `hvd`: what they do in Python. The programs that they start are installed beside the package."""
