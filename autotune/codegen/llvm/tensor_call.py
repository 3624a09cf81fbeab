"""A function of Python's that runs a model on the memory of tensors, as LLVM text.

PyObject *NAME(PyObject *block, PyObject *const *given, Py_ssize_t count), called as METH_FASTCALL
says. Given are three objects: a tuple of tensors, a list of tensors to be written, and the address
of three words of a session: its entry, where in its pointers inputs begin, and these pointers.

`block` is a bytes object of words of 64 bits. The first ones have names, in `NAMES`; then come
four of each weight (its place in the tuple, its object, its version, its address), and of each
input its place in the tuple.

The result is True where every weight is what the block says, and the model was run, without
Python's lock; otherwise False. Nothing else is checked: `address`, a function that gives the
memory of a tensor, must take each of them.
"""

from __future__ import annotations

FUNCTIONS = (
    "address", "enter", "tuple_item", "list_item", "attribute", "as_number", "as_pointer",
    "decrease", "increase", "save_thread", "restore_thread", "clear",
)  # fmt: skip
"""Addresses: what gives a tensor's memory, `watched_text`, functions of CPython's."""
OBJECTS = ("true", "false", "version", "words")
"""Python's, the name of the attribute that is a version, and what `enter` takes."""
COUNTS = ("weights", "takes", "gives")
NAMES = (*FUNCTIONS, *OBJECTS, *COUNTS)


def tensor_call_text(symbol: str, offset: int) -> str:
    """`offset`: bytes from a bytes object to the bytes that it holds."""
    return f"""define ptr @{symbol}(ptr %self, ptr %given, i64 %count) {{
begin:
  %block = getelementptr i8, ptr %self, i64 {offset}
{_named()}
  %tensors = load ptr, ptr %given
  %made.at = getelementptr i8, ptr %given, i64 8
  %made = load ptr, ptr %made.at
  %session.at = getelementptr i8, ptr %given, i64 16
  %session.object = load ptr, ptr %session.at
  %session = call ptr %as_pointer(ptr %session.object)
  %code = load ptr, ptr %session
  %ports.at = getelementptr i8, ptr %session, i64 8
  %ports = load ptr, ptr %ports.at
  %bases.at = getelementptr i8, ptr %session, i64 16
  %bases = load ptr, ptr %bases.at
  %rows = getelementptr i64, ptr %block, i64 {len(NAMES)}
  br label %weights.head
{_weights()}
{_placed("takes", "%places", "tuple_item", "%tensors", "%ports")}
{_placed("gives", "", "list_item", "%made", "%gives.ports")}
run:
  %thread = call ptr %save_thread()
  %ran = call i64 %enter(ptr %words, ptr %code, ptr %bases)
  call void %restore_thread(ptr %thread)
  %right = icmp ne i64 %ran, 0
  br label %done
raised:
  call void %clear()
  br label %done
done:
  %truth = phi i1 [ %right, %run ], [ false, %raised ], [ false, %weights.changed ]
  %result = select i1 %truth, ptr %true, ptr %false
  call void %increase(ptr %result)
  ret ptr %result
}}
"""


def _named() -> str:
    """The block's first words, by name."""
    return "\n".join(
        f"  %{name}.at = getelementptr i64, ptr %block, i64 {number}\n"
        f"  %{name} = load {'i64' if name in COUNTS else 'ptr'}, ptr %{name}.at"
        for number, name in enumerate(NAMES)
    )


def _weights() -> str:
    """Look at each weight: the same object, of the same version, at the same place."""
    return """weights.head:
  %weight = phi i64 [ 0, %begin ], [ %weight.next, %weight.same ]
  %row = phi ptr [ %rows, %begin ], [ %row.next, %weight.same ]
  %weight.more = icmp ult i64 %weight, %weights
  br i1 %weight.more, label %weight.body, label %takes.begin
weight.body:
  %weight.place = load i64, ptr %row
  %kept.at = getelementptr i64, ptr %row, i64 1
  %kept = load ptr, ptr %kept.at
  %kept.version.at = getelementptr i64, ptr %row, i64 2
  %kept.version = load i64, ptr %kept.version.at
  %kept.address.at = getelementptr i64, ptr %row, i64 3
  %kept.address = load ptr, ptr %kept.address.at
  %now = call ptr %tuple_item(ptr %tensors, i64 %weight.place)
  %same.object = icmp eq ptr %now, %kept
  br i1 %same.object, label %weight.versions, label %raised
weight.versions:
  %version.object = call ptr %attribute(ptr %now, ptr %version)
  %version.none = icmp eq ptr %version.object, null
  br i1 %version.none, label %raised, label %weight.compare
weight.compare:
  %version.now = call i64 %as_number(ptr %version.object)
  call void %decrease(ptr %version.object)
  %same.version = icmp eq i64 %version.now, %kept.version
  br i1 %same.version, label %weight.address, label %weights.changed
weight.address:
  %address.now = call ptr %address(ptr %now)
  %same.address = icmp eq ptr %address.now, %kept.address
  br i1 %same.address, label %weight.same, label %weights.changed
weight.same:
  %weight.next = add i64 %weight, 1
  %row.next = getelementptr i64, ptr %row, i64 4
  br label %weights.head
weights.changed:
  br label %done
takes.begin:
  %all = shl i64 %weights, 2
  %places = getelementptr i64, ptr %rows, i64 %all
  br label %takes.head"""


def _placed(name: str, places: str, item: str, given: str, ports: str) -> str:
    """Addresses of tensors of a sequence, at its places or all of them, put where ports are."""
    before, after = ("takes.begin", "gives.begin") if places else ("gives.begin", "run")
    place = f"%{name}.number"
    at = ""
    if places:
        place = f"%{name}.place"
        at = (
            f"  %{name}.place.at = getelementptr i64, ptr {places}, i64 %{name}.number\n"
            f"  {place} = load i64, ptr %{name}.place.at\n"
        )
    text = f"""{name}.head:
  %{name}.number = phi i64 [ 0, %{before} ], [ %{name}.next, %{name}.put ]
  %{name}.more = icmp ult i64 %{name}.number, %{name}
  br i1 %{name}.more, label %{name}.body, label %{after}
{name}.body:
{at}  %{name}.item = call ptr %{item}(ptr {given}, i64 {place})
  %{name}.none = icmp eq ptr %{name}.item, null
  br i1 %{name}.none, label %raised, label %{name}.put
{name}.put:
  %{name}.address = call ptr %address(ptr %{name}.item)
  %{name}.port = getelementptr ptr, ptr {ports}, i64 %{name}.number
  store ptr %{name}.address, ptr %{name}.port
  %{name}.next = add i64 %{name}.number, 1
  br label %{name}.head"""
    if places:
        text += f"""
gives.begin:
  %gives.ports = getelementptr ptr, ptr {ports}, i64 %{name}
  br label %gives.head"""
    return text
