"""`main.c`: runs an exported model on files, and times it. In: the prefix, and whether the model's
sizes are open. Out: text of C99."""

from __future__ import annotations

import re

_TEXT = r"""/* Runs a model on files of raw numbers, and prints milliseconds.

   main in0.bin ... -o out0.bin ... [--repeat N] [--threads N] [--weights FILE]@USAGE@

   A file holds one input, dense, little-endian, in the order of the model's inputs; outputs are
   written the same way. Build it with: cc -O2 main.c libmodel.a -lm -lpthread -o main */
#define _POSIX_C_SOURCE 199309L
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_ms(void) {
#ifdef CLOCK_MONOTONIC
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
#else /* no system below */
    return (double)clock() * 1e3 / CLOCKS_PER_SEC;
#endif
}

static int fail(const char *what, const char *why) {
    fprintf(stderr, "error: %s: %s\n", what, why);
    return 2;
}

static int read_file(const char *path, void *data, size_t bytes) {
    FILE *file = fopen(path, "rb");
    size_t got;
    int more;
    if (!file) return fail(path, "cannot be opened");
    got = fread(data, 1, bytes, file);
    more = got == bytes && fgetc(file) != EOF;
    fclose(file);
    if (got == bytes && !more) return 0;
    fprintf(stderr, "error: %s: expected %lu bytes, got %s\n", path, (unsigned long)bytes,
            more ? "more" : "fewer");
    return 2;
}

static int write_file(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    size_t put;
    if (!file) return fail(path, "cannot be written");
    put = fwrite(data, 1, bytes, file);
    return fclose(file) == 0 && put == bytes ? 0 : fail(path, "cannot be written");
}

static void *block(size_t bytes) {
    void *found = NULL;
    char *raw = malloc(bytes + 64);
    if (raw) found = raw + (64 - (size_t)raw % 64) % 64;
    return found;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int number(const char *text) {
    char *end;
    long value = strtol(text, &end, 10);
    return *text && !*end && value > 0 && value < 1000000000 ? (int)value : 0;
}

@FUNCTIONS@int main(int argc, char **argv) {
    const char *in[MODEL_INPUTS + 1], *out[MODEL_OUTPUTS + 1], *weights = "model.weights";
    /* static: what is never freed is no leak */
    static void *inputs[MODEL_INPUTS + 1], *outputs[MODEL_OUTPUTS + 1];
    static double *times;
    static model *instance;
    int ins = 0, outs = 0, writing = 0, repeat = 1, i, code;
    double start, load;
@LOCALS@#ifdef MODEL_NEEDS_MEMORY
    static void *memory;
    size_t bytes;
#endif
    for (i = 1; i < argc; i++) {
        int *wanted = NULL;
        if (!strcmp(argv[i], "--repeat") || !strcmp(argv[i], "--threads")) {
            int value = i + 1 < argc ? number(argv[i + 1]) : 0;
            if (!value) return fail(argv[i], "expected a number of at least 1");
            if (argv[i][2] == 'r') repeat = value;
            else if (model_limit_threads(value) != MODEL_OK) {
                fprintf(stderr, "error: --threads: the model was compiled for up to %d\n",
                        MODEL_THREADS);
                return 2;
            }
            i++;
        } else if (!strcmp(argv[i], "--weights")) {
            if (++i == argc) return fail("--weights", "expected a file");
            weights = argv[i];
@OPTION@        } else if (!strcmp(argv[i], "-o")) {
            writing = 1;
        } else if (argv[i][0] == '-' && argv[i][1] == '-') {
            return fail(argv[i], "no option of main; run it without arguments for those it has");
        } else {
            wanted = writing ? &outs : &ins;
        }
        if (wanted && *wanted == (writing ? MODEL_OUTPUTS : MODEL_INPUTS))
            return fail(argv[i], writing ? "more files than the model has outputs"
                                         : "more files than the model has inputs");
        if (wanted) (writing ? out : in)[(*wanted)++] = argv[i];
    }
    if (ins != MODEL_INPUTS || (writing && outs != MODEL_OUTPUTS)) {
        fprintf(stderr, "usage: main %d input file(s) [-o %d output file(s)] [--repeat N] "
                "[--threads N] [--weights FILE]@USAGE@\n", MODEL_INPUTS, MODEL_OUTPUTS);
        return 2;
    }
@CHECK@#ifdef MODEL_NEEDS_MEMORY
    (void)weights;
    bytes = @BYTES@;
@FITS@    memory = block(bytes);
    if (!memory) return fail("model", "no memory");
    start = now_ms();
    code = model_create_in(memory, bytes, NULL, &instance);
#else
    start = now_ms();
    code = model_create(weights, &instance);
#endif
    load = now_ms() - start;
    if (code != MODEL_OK) return fail("model", model_error(code));
@RESIZE@    for (i = 0; i < MODEL_INPUTS; i++) {
        inputs[i] = block(model_input(i)->bytes);
        if (!inputs[i]) return fail(in[i], "no memory");
        if (read_file(in[i], inputs[i], model_input(i)->bytes)) return 2;
    }
    for (i = 0; i < MODEL_OUTPUTS; i++) {
        outputs[i] = block(model_output(i)->bytes);
        if (!outputs[i]) return fail("outputs", "no memory");
    }
    times = malloc((size_t)repeat * sizeof *times);
    if (!times) return fail("--repeat", "no memory");
    for (i = 0; i < repeat; i++) {
        start = now_ms();
        code = model_run(instance, (const void *const *)inputs, outputs);
        times[i] = now_ms() - start;
        if (code != MODEL_OK) return fail("model", model_error(code));
    }
    for (i = 0; i < outs; i++)
        if (write_file(out[i], outputs[i], model_output(i)->bytes)) return 2;
    printf("load %.3f ms\nfirst %.3f ms\n", load, times[0]);
    qsort(times, (size_t)repeat, sizeof *times, by_size);
    printf("median %.3f ms\nleast %.3f ms\n", times[repeat / 2], times[0]);
    model_destroy(instance);
    return 0;
}
"""


_FUNCTIONS = r"""static int size_option(const char *text, int64_t *sizes) {
    const char *is = strchr(text, '=');
    int32_t n;
    int value = is ? number(is + 1) : 0;
    for (n = 0; is && n < MODEL_SIZES; n++) {
        const model_range *range = model_size(n);
        if (strlen(range->name) != (size_t)(is - text)) continue;
        if (strncmp(range->name, text, (size_t)(is - text))) continue;
        if (value >= range->least && value <= range->most &&
            (value - range->least) % range->step == 0) {
            sizes[n] = value;
            return 0;
        }
        fprintf(stderr, "error: --size %s: expected %lld to %lld in steps of %lld\n", text,
                (long long)range->least, (long long)range->most, (long long)range->step);
        return 2;
    }
    fprintf(stderr, "error: --size %s: expected NAME=N for each of", text);
    for (n = 0; n < MODEL_SIZES; n++) fprintf(stderr, " %s", model_size(n)->name);
    fprintf(stderr, "\n");
    return 2;
}

"""
_PARTS = {
    "@USAGE@": " --size NAME=N ...",
    "@FUNCTIONS@": _FUNCTIONS,
    "@LOCALS@": "    int64_t sizes[MODEL_SIZES];\n",
    "@OPTION@": """\
        } else if (!strcmp(argv[i], "--size")) {
            if (++i == argc) return fail("--size", "expected NAME=N");
            if (size_option(argv[i], sizes)) return 2;
""",
    "@CHECK@": """\
    for (i = 0; i < MODEL_SIZES; i++)
        if (sizes[i] < 0) return fail(model_size(i)->name, "expected --size NAME=N for it");
""",
    "@BYTES@": "model_memory_bytes(sizes)",
    "@FITS@": '    if (!bytes) return fail("--size", model_error(MODEL_BAD_SIZES));\n',
    "@RESIZE@": """\
    code = model_resize(instance, sizes);
    if (code != MODEL_OK) return fail("--size", model_error(code));
""",
}
"""What models of open sizes have besides."""
_FIXED_PARTS = {"@BYTES@": "MODEL_MEMORY_BYTES"}


def main_text(prefix: str, *, open_sizes: bool = False) -> str:
    """The program, for a model whose names begin with `prefix`."""
    text = _TEXT
    for mark, part in _PARTS.items():
        text = text.replace(mark, part if open_sizes else _FIXED_PARTS.get(mark, ""))
    if open_sizes:
        text = text.replace("put(i)->bytes", "put_of(instance, i)->bytes")
        first = "    for (i = 1; i < argc; i++) {\n"
        text = text.replace(
            first, f"    for (i = 0; i < MODEL_SIZES; i++) sizes[i] = -1;\n{first}", 1
        )
    text = text.replace("MODEL_", f"{prefix.upper()}_").replace("model_", f"{prefix}_")
    return text.replace("    static model *instance", f"    static {prefix} *instance")


def is_taken(name: str) -> bool:
    """Whether the program has a name of its own, or of the C library's, which no type may have."""
    code = re.sub(r'/\*.*?\*/|"[^"]*"', "", _TEXT + _FUNCTIONS, flags=re.DOTALL)
    return name in set(re.findall(r"\w+", code)) - {"model"}
