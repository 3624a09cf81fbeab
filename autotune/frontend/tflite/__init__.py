"""The TensorFlow Lite importer, a file for each family of operators."""
