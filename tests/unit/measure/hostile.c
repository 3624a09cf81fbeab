/* A kernel that looks for secrets in every way it knows, says which it found, and traps.
 * Raw system calls of x86-64: it needs nothing of the process that loads it. KERNEL, SECRETS (paths,
 * each with a comma after it), WORD and SHM_KEY are given by who compiles it. */
typedef long i64;

static i64 sys(i64 n, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f) {
    register i64 r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    i64 out;
    __asm__ volatile("syscall" : "=a"(out) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return out;
}
#define S3(n, a, b, c) sys(n, (i64)(a), (i64)(b), (i64)(c), 0, 0, 0)
enum { READ, WRITE, OPEN, CLOSE, FSTAT = 5, FCNTL = 72, GETPID = 39, SOCKET = 41, CONNECT = 42, KILL = 62,
       SHMGET = 29, SYMLINK = 88, PTRACE = 101, GETPPID = 110, MOUNT = 165, CHROOT = 161,
       SETUID = 105, GETDENTS = 217, OPENAT = 257, UNSHARE = 272, BY_HANDLE = 304, VM_READ = 310,
       URING = 425, PIDFD = 434, GETFD = 438 };
static const char *const secrets[] = {SECRETS 0};
static char said[2000];
static i64 length, probes;

static i64 count(const char *t) { i64 n = 0; while (t[n]) n++; return n; }
static void put(const char *t) { while (*t && length < 1900) said[length++] = *t++; }
static void got(const char *what, const char *which, i64 yes) {
    probes++;
    static const char *last;
    if (yes && which != last) { last = which; put(" "); put(what); put(":"); put(which); }
}
static const char *path(i64 pid, const char *rest) {
    static char text[64];
    char digits[20]; i64 n = 0, at = 0;
    const char *start = "/proc/";
    while (*start) text[at++] = *start++;
    do digits[n++] = '0' + pid % 10; while (pid /= 10);
    while (n) text[at++] = digits[--n];
    while (*rest) text[at++] = *rest++;
    text[at] = 0;
    return text;
}
static i64 readable(const char *name) {
    char block[64];
    i64 file = S3(OPEN, name, 0, 0), n;
    if (file < 0) return 0;
    n = S3(READ, file, block, 64);
    if (n == -21) n = S3(GETDENTS, file, block, 64);
    S3(CLOSE, file, 0, 0);
    return n > 0 || n == -22; /* a directory with entries too long for the block */
}
static i64 own_environment_has(const char *word) {
    static char text[1 << 16];
    i64 file = S3(OPEN, "/proc/self/environ", 0, 0), n = 0, k, at;
    if (file < 0) return 0;
    while ((k = S3(READ, file, text + n, sizeof text - n)) > 0) n += k;
    S3(CLOSE, file, 0, 0);
    for (at = 0; at + count(word) <= n; at++) {
        for (k = 0; word[k] && text[at + k] == word[k]; k++) ;
        if (!word[k]) return 1;
    }
    return 0;
}
static void descriptors(void) {
    for (i64 fd = 0; fd < 256; fd++) {
        i64 flags = S3(FCNTL, fd, 3, 0);
        unsigned status[64];
        if (flags < 0 || S3(FSTAT, fd, status, 0) < 0) continue;
        unsigned kind = status[6] & 0170000;
        got("descriptor", "socket", kind == 0140000);
        /* 1 and 2 are what it may print to; 1 << 21: a name only, nothing to read */
        got("descriptor", "file", kind == 0100000 && fd > 2 && !(flags & 1 << 21));
        got("descriptor", "shadow", S3(OPENAT, fd, "../../../../../etc/shadow", 0) >= 0);
        got("descriptor", "1", S3(OPENAT, fd, "../1/environ", 0) >= 0);
    }
}
static void processes(void) {
    i64 parent = S3(GETPPID, 0, 0, 0), self = S3(GETPID, 0, 0, 0);
    static const char *const parts[] = {"/environ", "/mem", "/maps", "/fd", "/root/etc", "/cwd", 0};
    char block[16]; i64 near[2] = {(i64)block, 16}, far[2] = {0x400000, 16};
    for (int n = 0; parts[n]; n++) {
        got("parent", parts[n], readable(path(parent, parts[n])));
        got("init", parts[n], readable(path(1, parts[n])));
    }
    for (i64 pid = parent; pid < self + 40 && pid < parent + 4000; pid++)
        if (pid != self) got("process", "environ", readable(path(pid, "/environ")));
    
    /* an option that there is not: refused is EPERM, allowed is EIO */
    got("parent", "seize", sys(PTRACE, 0x4206, parent, 0, 1 << 30, 0, 0) == -5);
    got("parent", "vm_read", sys(VM_READ, parent, (i64)near, 1, (i64)far, 1, 0) >= 0);
    got("parent", "pidfd", S3(PIDFD, parent, 0, 0) >= 0);
    got("parent", "kill", S3(KILL, parent, 0, 0) >= 0);
}
void KERNEL_run(void **args, i64 repeats) {
    static char address[16] = {1, 0, 0, 'h', 'i', 'd', 'd', 'e', 'n'};
    struct { unsigned size; int kind; unsigned char handle[8]; } handle = {8, 1, {2}};
    (void)args; (void)repeats;
    for (int n = 0; secrets[n]; n++) {
        got("read", secrets[n], readable(secrets[n]));
        S3(SYMLINK, secrets[n], "way", 0);
        got("through", secrets[n], readable("way"));
        got("write", secrets[n], S3(OPEN, secrets[n], 1, 0) >= 0);
        S3(87, "way", 0, 0);
    }
    got("environment", WORD, own_environment_has(WORD));
    processes();
    descriptors();
    i64 sock = S3(SOCKET, 1, 1, 0);
    got("socket", "local", sock >= 0);
    got("socket", "abstract", sock >= 0 && S3(CONNECT, sock, address, 9) >= 0);
    got("socket", "internet", S3(SOCKET, 2, 1, 0) >= 0);
    got("memory", "shared", S3(SHMGET, SHM_KEY, 0, 0) >= 0);
    got("right", "root", S3(SETUID, 0, 0, 0) >= 0 && readable("/etc/shadow"));
    got("right", "unshare", S3(UNSHARE, 0x04000000, 0, 0) >= 0);
    /* harmless where they are allowed: a worker without walls is on the machine's own files */
    got("right", "chroot", S3(CHROOT, "/", 0, 0) >= 0);
    got("right", "mount", sys(MOUNT, (i64)"", (i64)".", 0, 8192, 0, 0) != -1);
    got("right", "handle", S3(BY_HANDLE, -100, &handle, 0) >= 0);
    got("right", "uring", S3(URING, 1, said, 0) >= 0);
    put(" of ");
    char digits[20]; i64 n = 0;
    do digits[n++] = '0' + probes % 10; while (probes /= 10);
    while (n) said[length++] = digits[--n];
    put(" probes\n");
    S3(WRITE, 2, "\nfound", 6);
    S3(WRITE, 2, said, length);
    __builtin_trap();
}
void KERNEL(void **args) { KERNEL_run(args, 1); }
