"""An exported model from Python by ctypes, without this project: zeros in, the best class out."""

import ctypes
import sys


class Tensor(ctypes.Structure):
    """`model_tensor` of model.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("bytes", ctypes.c_size_t),
        ("rank", ctypes.c_int32),
    )


library = ctypes.CDLL(sys.argv[1])
for side in ("input", "output"):
    getattr(library, f"model_{side}").restype = ctypes.POINTER(Tensor)
library.model_error.restype = ctypes.c_char_p


def done(code: int) -> None:
    """Stop where a function failed."""
    if code:
        sys.exit(library.model_error(code).decode())


def arrays(side: str) -> list:
    """An array of zeros for every input, or output."""
    count = getattr(library, f"model_{side}s")()
    tensors = [getattr(library, f"model_{side}")(n).contents for n in range(count)]
    return [(ctypes.c_float * (tensor.bytes // 4))() for tensor in tensors]


def pointers(blocks: list) -> ctypes.Array:
    """Their addresses."""
    return (ctypes.c_void_p * len(blocks))(*map(ctypes.addressof, blocks))


instance = ctypes.c_void_p()
done(library.model_create(b"model.weights", ctypes.byref(instance)))
inputs, outputs = arrays("input"), arrays("output")
done(library.model_run(instance, pointers(inputs), pointers(outputs)))
library.model_destroy(instance)
best = max(range(len(outputs[0])), key=outputs[0].__getitem__)
print(f"class {best}: {outputs[0][best]:f}")
