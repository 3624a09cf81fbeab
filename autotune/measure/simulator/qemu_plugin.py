"""A plugin of QEMU that counts basic blocks between marks. In: the system's C compiler. Out: a
shared library for `-plugin FILE,out=FILE,mark=ADDRESS`, and its counts read.

Debian ships none of QEMU's own plugins, nor their header; the few functions used here are declared
as QEMU 7 to 9 have them. `-icount` would count instructions, but not which: a table of cycles
needs blocks, and with them QEMU and Unicorn give the same cycles.
"""

from __future__ import annotations

import functools
import struct

from autotune.codegen.c.compiler import shared_library

BLOCK = struct.Struct("<IIQQ")
"""Address, bytes, how often it ran, how often it was left by a jump; nothing but zeros: a mark."""

_TEXT = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint32_t at, bytes; uint64_t runs, jumps; } block;
typedef struct node { block counts; struct node *next; } node;
typedef struct tb tb;
typedef struct insn insn;
typedef void (*on_block)(uint64_t id, tb *code);
typedef void (*on_run)(unsigned cpu, void *given);
typedef void (*on_exit_)(uint64_t id, void *given);

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, on_block call);
void qemu_plugin_register_vcpu_tb_exec_cb(tb *code, on_run call, int flags, void *given);
void qemu_plugin_register_atexit_cb(uint64_t id, on_exit_ call, void *given);
size_t qemu_plugin_tb_n_insns(const tb *code);
uint64_t qemu_plugin_tb_vaddr(const tb *code);
insn *qemu_plugin_tb_get_insn(const tb *code, size_t number);
size_t qemu_plugin_insn_size(const insn *one);
uint64_t qemu_plugin_insn_vaddr(const insn *one);

int qemu_plugin_version = 1;
static node *all;
static block *last;
static uint32_t mark;
static FILE *out;

static void counted(unsigned cpu, void *given)
{
    node *now = given, *each;
    static const block none;
    (void)cpu;
    if (last && now->counts.at != last->at + last->bytes) last->jumps++;
    last = &now->counts;
    if (now->counts.at != mark) {
        now->counts.runs++;
        return;
    }
    for (each = all; each; each = each->next)
        if (each->counts.runs) {
            fwrite(&each->counts, sizeof(block), 1, out);
            each->counts.runs = each->counts.jumps = 0;
        }
    fwrite(&none, sizeof none, 1, out);
    last = 0;
}

static void translated(uint64_t id, tb *code)
{
    size_t count = qemu_plugin_tb_n_insns(code);
    insn *end = qemu_plugin_tb_get_insn(code, count - 1);
    node *now = calloc(1, sizeof *now);
    (void)id;
    if (!now) abort();
    now->counts.at = (uint32_t)qemu_plugin_tb_vaddr(code);
    now->counts.bytes =
        (uint32_t)(qemu_plugin_insn_vaddr(end) + qemu_plugin_insn_size(end)) - now->counts.at;
    now->next = all;
    all = now;
    qemu_plugin_register_vcpu_tb_exec_cb(code, counted, 0, now);
}

static void ended(uint64_t id, void *given)
{
    (void)id, (void)given;
    fclose(out);
}

int qemu_plugin_install(uint64_t id, const void *about, int count, char **given)
{
    int n;
    (void)about;
    for (n = 0; n < count; n++) {
        if (!strncmp(given[n], "out=", 4)) out = fopen(given[n] + 4, "wb");
        if (!strncmp(given[n], "mark=", 5)) mark = (uint32_t)strtoul(given[n] + 5, 0, 0);
    }
    if (!out) return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, 0);
    return 0;
}
"""


@functools.lru_cache(maxsize=1)
def plugin() -> bytes:
    """The library, made once in a process. Raises BuildError."""
    return shared_library(_TEXT)


def sections(data: bytes) -> list[list[tuple[int, int, int, int]]]:
    """Blocks before each mark."""
    out: list[list[tuple[int, int, int, int]]] = []
    found: list[tuple[int, int, int, int]] = []
    for row in BLOCK.iter_unpack(data[: len(data) // BLOCK.size * BLOCK.size]):
        if row[1]:
            found.append(row)
        else:
            out.append(found)
            found = []
    return out
