"""Import ONNX models: one file for each family of operators."""
